"""The closed loop keeps its invariants in random scenarios, and hysteresis and guards are what keeps it calm.

`python -m tests.closed_loop` runs thousands more of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kquota_spark.enforce import guards
from kquota_spark.enforce.changes import Mode
from kquota_spark.enforce.guard_settings import Exempt
from kquota_spark.model.simulation.clients import Client
from tests.closed_loop import __main__ as command
from tests.closed_loop import closed_loop
from tests.closed_loop.closed_loop import Summary, Trial
from tests.closed_loop.scenario import (
    HOUR_MS,
    LENGTH_MS,
    MINUTE_MS,
    Load,
    Scenario,
    draw,
)
from tests.support.chance import Chance

SCENARIOS = 300


def test_nothing_is_broken_in_random_scenarios(chance: Chance) -> None:
    done: list[int] = []
    summary = closed_loop.run(SCENARIOS, chance.randrange(10**6), done.append)
    print(summary)
    assert summary.first_broken == ()
    assert (summary.broken, summary.scenarios, done) == (0, SCENARIOS, list(range(1, SCENARIOS + 1)))


def test_one_late_change_under_a_constant_load_is_no_wave() -> None:
    # 11 requests in half an hour instead of 12: the use of all comes below 0.7 of the capacity, once in five hours.
    outcome = Trial(draw(309_182, 79)).run()
    assert outcome.changed_at_ms == [20 * MINUTE_MS, 260 * MINUTE_MS]
    assert outcome.broken == []


def test_all_that_can_happen_does_so_that_all_of_it_is_judged() -> None:
    # Not of any seed: in one of seventy nobody freezes at the right moment.
    summary = closed_loop.run(SCENARIOS, 1, lambda _: None)
    assert set(summary.events) >= {"planned", "refused", "sending", "applied", "failed", "restoring"}
    assert set(summary.events) >= {"restored", "superseded", "approved"}
    unasked = {
        "validate",
        "lease",
    }  # never refused here: bounds come first, and the lease is lost in mid-round
    assert set(summary.refusals) >= {name for name, _ in guards.GUARDS} - unasked
    assert summary.crashes > 0


def test_the_same_seed_is_the_same_run() -> None:
    assert closed_loop.run(5, 7, lambda _: None) == closed_loop.run(5, 7, lambda _: None)
    assert closed_loop.run(5, 7, lambda _: None) != closed_loop.run(5, 8, lambda _: None)


def test_the_command_counts_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--scenarios", "3", "--seed", "5"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert (shown[:2], shown[-1]) == ([["seed", "5"], ["scenarios", "3"]], ["invariants", "broken", "0"])


def test_the_command_names_a_broken_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Summary(1, 2, 3, 4, 5, broken=1, first_broken=("1: sent while it was frozen",))
    monkeypatch.setattr(closed_loop, "run", lambda *_: broken)
    assert command.main([]) == 1
    assert capsys.readouterr().out.endswith("broken in scenario 1: sent while it was frozen\n")


def waves(scenario: Scenario) -> tuple[int, int]:
    """How often quotas turned round, and how many changes there were in the last quarter."""
    outcome = Trial(scenario).run()
    print([ms // 60_000 for ms in outcome.changed_at_ms])
    return outcome.turns, sum(ms > LENGTH_MS * 3 // 4 for ms in outcome.changed_at_ms)


def contended(chance: Chance, *, has_hysteresis: bool, reversals_per_day: int) -> Scenario:
    """Two clients that want 1.5 MB/s each of a broker that does 2 MB/s, and nothing goes wrong."""
    seed = chance.randrange(10**6)
    drawn = next(found for number in range(100) if (found := draw(seed, number)).load is Load.CONSTANT)
    clients = [
        Client("app", 75_000_000, user=f"user{i}", interval_ms=50_000, first_send_ms=i * 1_000)
        for i in range(2)
    ]
    return replace(
        drawn,
        clients=tuple(clients),
        quotas={"user0": 1.2e6, "user1": 1.2e6},
        capacity_per_s=2e6,
        settings=replace(
            drawn.settings, reversals_per_day=reversals_per_day, changes_per_hour=10, changes_per_plan=20
        ),
        exempt=Exempt(),
        managed=frozenset(),
        broken=frozenset(),
        mode=Mode.ENFORCE,
        has_hysteresis=has_hysteresis,
        penalty_ms=24 * HOUR_MS,
        trouble=0.0,
        trouble_until_ms=0,
    )


def test_with_hysteresis_the_loop_comes_to_rest(chance: Chance) -> None:
    turns, late = waves(contended(chance, has_hysteresis=True, reversals_per_day=1_000))
    assert (turns, late) == (0, 0)


def test_without_hysteresis_it_goes_round_and_round(chance: Chance) -> None:
    turns, late = waves(contended(chance, has_hysteresis=False, reversals_per_day=1_000))
    print(turns, late)
    assert turns >= 8
    assert late >= 2


def test_changes_that_go_on_under_a_constant_load_are_broken(chance: Chance) -> None:
    outcome = Trial(contended(chance, has_hysteresis=False, reversals_per_day=1_000)).run()
    broken = [what.partition(" ms")[0].partition(" [")[0] for what in outcome.broken]
    assert sorted(broken) == [
        "users/user0: constant load, and changes at",
        "users/user1: constant load, and changes at",
    ]


@pytest.mark.parametrize("most", [0, 1, 2])
def test_without_hysteresis_the_guard_leaves_what_is_unstable_alone(most: int, chance: Chance) -> None:
    turns, late = waves(contended(chance, has_hysteresis=False, reversals_per_day=most))
    assert turns <= 2 * most
    assert late == 0
