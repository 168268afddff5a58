"""Enforcement against the model's broker in many random scenarios: what was done, and whether anything was broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kquota_spark.enforce.simulation.scenario import draw
from kquota_spark.enforce.simulation.trial import Trial

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run of the closed loop came to."""

    seed: int
    scenarios: int
    requests: int
    rounds: int
    crashes: int
    events: dict[str, int] = field(default_factory=dict)
    """Rows of the log by event: planned, sending, applied, ..."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Rows of the log by the guard that refused."""
    broken: int = 0
    """Invariants that did not hold; 0 is the result to have."""
    first_broken: tuple[str, ...] = ()
    """The first of them, each after the number of its scenario; the same seed and number show it again."""

    def rows(self) -> list[tuple[str, str, int]]:
        """What, of which kind, and how many, for a table."""
        return [
            ("seed", "", self.seed),
            ("scenarios", "", self.scenarios),
            ("requests", "", self.requests),
            ("rounds", "", self.rounds),
            ("crashes", "", self.crashes),
            *(("rows of the log", kind, count) for kind, count in self.events.items()),
            *(("refused by guard", kind, count) for kind, count in self.refusals.items()),
            ("invariants broken", "", self.broken),
        ]


def run(scenarios: int, seed: int, report_progress: Callable[[int], None]) -> Summary:
    """Run the scenarios 0, 1, 2, ... of a seed.

    Args:
        scenarios: how many.
        seed: the only source of chance.
        report_progress: told after each scenario how many are done.
    """
    requests = rounds = crashes = 0
    events: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    broken: list[str] = []
    for number in range(scenarios):
        outcome = Trial(draw(seed, number)).run()
        requests += outcome.requests
        rounds += outcome.rounds
        crashes += outcome.crashes
        events += outcome.events
        refusals += outcome.refusals
        broken += [f"{number}: {what}" for what in outcome.broken]
        report_progress(number + 1)
    return Summary(
        seed,
        scenarios,
        requests,
        rounds,
        crashes,
        dict(events.most_common()),
        dict(refusals.most_common()),
        len(broken),
        tuple(broken[:_MOST_NAMED]),
    )
