"""A burst whose minute is not over: the answer names growth and the burst, and when it is known which of them."""

from __future__ import annotations

import pytest

from kquota_spark.model.attribution.causes import Attribution, attribute
from kquota_spark.model.attribution.counterfactuals import Case, LimitFrom, Replay, Request, with_own_times
from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.attribution.observed import Baseline, BaselineKind, Observed, Totals
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.sentences import main_sentence, short_text, title_of
from tests.support.attribution.simulated import RING

FROM_MS = 1_795_239_600_000
"""2026-11-21 05:40:00 UTC."""
KNOWN_MS = FROM_MS + 60_000
ALICE = ("alice", "app")
LIMIT = 100_000.0
USUAL = Baseline(BaselineKind.BEFORE, 600, {ALICE: Totals(6_000_000, 600)})
"""10 kB/s: in a minute the limit lets 6 MB through, and a burst has 80 % of that at most, 4.8 MB."""


def _attributed(requests: int, tables_to_ms: int, usual: Baseline | None = USUAL) -> Attribution:
    """The causes of requests of 99.9 kB and more, ten per second, after a pause of 700 s.

    Each has its own connection and its own size, so none repeats another one.
    """
    sent = [
        Request(FROM_MS + 100 * order, order, 1, order, ALICE, 99_900 + order) for order in range(requests)
    ]
    replay = Replay(RING, FROM_MS)
    case = with_own_times(Case(sent, (LimitFrom(0, LIMIT),)), replay)
    to_ms = FROM_MS + 100 * requests
    return attribute(Observed(case, replay, to_ms, FROM_MS - 700_000, tables_to_ms, baseline=usual))


def _reasons(attribution: Attribution) -> Reasons:
    return Reasons(
        BucketName("produce", "", "app"), FROM_MS, KNOWN_MS, LIMIT, attribution.delay_ms, attribution
    )


def test_before_the_minute_is_over_growth_may_be_a_burst_and_counts_half() -> None:
    """2 MB in 2 s: they fit into a minute so far."""
    found = _attributed(20, FROM_MS + 59_999)
    [part] = found.named
    assert (found.main, part.is_undecided, part.facts["burst_known_ms"]) == (Cause.GROWTH, True, KNOWN_MS)
    # All of the delay, times the precision of growth, (7 + 1) / (8 + 2), half of it.
    assert (part.share_percent, part.confidence) == (100.0, 0.4)
    assert title_of(part) == "burst or growth"
    known = "known at 11-21 05:41:00"
    sentence = main_sentence(_reasons(found))
    assert sentence.startswith("100 % of the delay: alice / app wanted ")
    assert sentence.endswith(f"in the time before; a burst or growth, {known}")
    assert main_sentence(_reasons(found), with_names=False) == f"100 % of the delay: burst or growth, {known}"
    assert short_text(_reasons(found)) == "burst or growth 100 %"


def test_after_the_minute_it_is_a_burst() -> None:
    found = _attributed(20, KNOWN_MS)
    assert found.main is Cause.BURST
    # Six of six were right: (6 + 1) / (6 + 2).
    assert found.named[0].confidence == pytest.approx(found.named[0].share_percent / 100 * 0.875)


def test_what_is_too_much_for_a_minute_is_growth_at_once() -> None:
    """48 requests have 4,796,328 bytes, and 49 of them 4,896,276: the minute lets 4.8 MB through."""
    assert _attributed(48, FROM_MS + 10_000).named[0].is_undecided
    found = _attributed(49, FROM_MS + 10_000)
    assert (found.main, found.named[0].confidence) == (Cause.GROWTH, 0.8)
    assert "known at" not in main_sentence(_reasons(found))


def test_without_a_usual_amount_nothing_is_growth() -> None:
    found = _attributed(20, FROM_MS + 10_000, usual=None)
    assert (found.main, short_text(_reasons(found))) == (Cause.STEADY, "steady at the limit")
