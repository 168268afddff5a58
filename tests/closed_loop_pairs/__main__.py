"""`python -m tests.closed_loop_pairs --seed N`: the closed loop against a real broker, on pairs of limits.

Each pair is one kind of client. It runs under limit A and under limit B at the same time, as two client ids. The log of
A predicts the delay under B, and the broker's own delay under B is the truth. 24 pairs take about three minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kquota_spark.formats.text.person_units import person_bytes, person_ms, person_rate
from tests.closed_loop_pairs.plan import PAIRS, drawn_pairs
from tests.closed_loop_pairs.prediction import Outcome, outcomes
from tests.closed_loop_pairs.run import prepared_cluster, run_pairs, seeded_options
from tests.support.chance import Chance

_AT_ONCE = 4
_LINE = "{:>2}  {:<12}  {:>5}  {:<5}  {:>8} {:>8}  {:>8} {:>8} {:>8}  {:<21}  {:>8}  {:<7} {:<6}  {:>7} {:>7}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pairs, and print the table."""
    options = seeded_options("python -m tests.closed_loop_pairs", __doc__, "pairs", PAIRS)
    options.add_argument("--keep", type=Path, metavar="FILE", help="write the broker's request log here")
    options.add_argument("--log", type=Path, metavar="FILE", help="compare a kept log, without a broker")
    chosen = options.parse_args(arguments)
    pairs = drawn_pairs(Chance(chosen.seed), chosen.pairs)
    if chosen.log is not None:
        _print(outcomes(chosen.log, pairs))
        return 0
    with tempfile.TemporaryDirectory(prefix="kquota-pairs-") as directory:
        with prepared_cluster(Path(directory)) as cluster:
            for place in range(0, len(pairs), _AT_ONCE):
                run_pairs(cluster, pairs[place : place + _AT_ONCE])
                print(f"{min(place + _AT_ONCE, len(pairs))} of {len(pairs)} pairs run", file=sys.stderr)
        log = cluster.brokers[0].request_log
        if chosen.keep is not None:
            chosen.keep.write_bytes(log.read_bytes())
        _print(outcomes(log, pairs))
    return 0


def _print(found: Sequence[Outcome]) -> None:
    print(
        _LINE.format(
            "", "client", "conns", "paced", "A", "B", "delay A", "open", "closed", "bound", "B real", "inside",
            "nearer", "served", "real",
        )
    )  # fmt: skip
    for each in found:
        print(_line(each))
    inside = sum(each.is_inside for each in found)
    nearer, equal = (sum(test(*each.errors_ms) for each in found) for test in (int.__gt__, int.__eq__))
    served = sorted(abs(each.closed.served - each.measured_bytes) / each.measured_bytes for each in found)
    print(
        f"inside the bound: {inside} of {len(found)}; closed nearer than open: {nearer}, as near: {equal}; "
        f"served bytes off by {served[len(served) // 2]:.1%} (median), {served[-1]:.1%} (most)"
    )


def _line(each: Outcome) -> str:
    pair, closed, (open_ms, closed_ms) = each.pair, each.closed, each.errors_ms
    low, high = closed.delay.low, closed.delay.high
    return _LINE.format(
        pair.number, pair.behaviour.value, pair.connections, "think" if pair.does_think else "clock",
        person_rate(pair.limit_a), person_rate(pair.limit_b), person_ms(each.before_ms), person_ms(each.open_ms),
        person_ms(closed.throttled_ms), f"{person_ms(low)} to {'-' if high is None else person_ms(high)}",
        person_ms(each.measured_ms), "yes" if each.is_inside else "NO",
        "yes" if closed_ms < open_ms else "same" if closed_ms == open_ms else "NO", person_bytes(closed.served),
        person_bytes(each.measured_bytes),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
