"""The table of agreement per capture on the page `accuracy.md`, from a replay of each.

`python -m tests.site.accuracy` prints it.
"""

from __future__ import annotations

from functools import cache

from kquota_spark.model.replay.agreement import Agreement, error_summary
from tests.support.logs.captures import ALL, limited_produces

_ABOUT = {
    "zk39-levels": "Kafka 3.9.1, 2 brokers, all eight levels",
    "zk39-plain": "3.9.1, 5 windows of 2 s",
    "kraft39": "3.9.1, KRaft, all eight levels",
    "jmx-telegraf": "3.9.1, a short one",
    "zk37": "3.7.2, with the older ring",
    "kraft41": "4.1.1, KRaft",
}


@cache
def tallies() -> dict[str, Agreement]:
    """Produce requests under a limit, by capture."""
    return {capture.name: limited_produces(capture) for capture in ALL}


def rows() -> list[str]:
    """The rows of the table."""
    return [_row(name, tally) for name, tally in tallies().items()]


def totals() -> tuple[int, int, int]:
    """Verdicts that agree, certain verdicts, and uncertain ones, of all captures."""
    found = tallies().values()
    return (
        sum(tally.agreeing for tally in found),
        sum(tally.requests_judged for tally in found),
        sum(tally.uncertain for tally in found),
    )


def _row(name: str, tally: Agreement) -> str:
    wrong = tally.false_positive + tally.false_negative
    error = error_summary(tally.throttle_errors_ms)
    cells = (
        f"{name}: {_ABOUT[name]}",
        f"{tally.requests_judged:,}",
        f"{tally.throttled_by_broker:,}",
        str(wrong),
        f"{100 * tally.agreeing / tally.requests_judged:.2f} %",
        f"{tally.uncertain}, {tally.uncertain_wrong or 'none'} wrong",
        " / ".join(f"{error[part]:,}" for part in ("median", "p90", "p99", "max")),
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(rows()))
    print(*totals())
