"""Over all captures together: a certain produce verdict is the broker's, and few are uncertain."""

from __future__ import annotations

from tests.support.logs.captures import ALL, limited_produces


def test_certain_verdicts_are_right_and_few_are_uncertain() -> None:
    judged = agreeing = uncertain = throttled = 0
    print("capture         certain  throttled  wrong  uncertain  of them wrong")
    for capture in ALL:
        found = limited_produces(capture)
        wrong = found.false_positive + found.false_negative
        print(
            f"{capture.name:14}{found.requests_judged:9,}{found.throttled_by_broker:11,}{wrong:7}"
            f"{found.uncertain:11,}{found.uncertain_wrong:15}"
        )
        judged += found.requests_judged
        agreeing += found.agreeing
        uncertain += found.uncertain
        throttled += found.throttled_by_broker
    print(
        f"{agreeing:,} of {judged:,} certain verdicts right ({100 * agreeing / judged:.3f} %), "
        f"{100 * uncertain / (judged + uncertain):.2f} % uncertain"
    )
    assert throttled > 15_000
    assert agreeing >= 0.9995 * judged
    assert uncertain <= 0.05 * (judged + uncertain)
