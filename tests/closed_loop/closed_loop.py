"""Enforcement against the model's broker in many random scenarios: what was done, and whether anything was broken.

A scenario is rounds of the loop, what goes wrong in them, and what must hold afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field

from kquota_spark.enforce.changes import Event, Mode, Proposal, Quota
from kquota_spark.enforce.enforcer import Enforcer
from kquota_spark.enforce.guards import Situation
from kquota_spark.enforce.in_memory import (
    InMemoryLease,
    InMemoryLeases,
    InMemorySwitch,
    MemoryCluster,
)
from kquota_spark.enforce.ports import Frozen, Written
from kquota_spark.errors import UserError
from tests.closed_loop.invariants import (
    PERSON,
    Truth,
    Watch,
    WatchedCluster,
    WatchedLedger,
    turns_of,
)
from tests.closed_loop.policies import Look, proposals, quota_of
from tests.closed_loop.scenario import (
    LENGTH_MS,
    MINUTE_MS,
    ROUND_MS,
    Load,
    Scenario,
    Traffic,
    draw,
)
from tests.closed_loop.troubled_ports import CrashError, Trouble, TroubledCluster, TroubledLedger

_DAY_MS = 24 * 60 * MINUTE_MS
_NAMES = ("first", "second")
_WRITE_TROUBLES = (Trouble.REFUSED, Trouble.LOST, Trouble.DROPPED, Trouble.LATE)
_CRASHES = (Trouble.CRASH_BEFORE, Trouble.CRASH_AFTER)
_BETWEEN = ("read", "append planned", "append refused")
"""Calls at which others act: none of them lies between the last look at lease and switch and the write itself."""
_MOST_NAMED = 20


@dataclass(slots=True)
class Outcome:
    """What a scenario came to."""

    rounds: int = 0
    crashes: int = 0
    requests: int = 0
    events: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    changed_at_ms: list[int] = field(default_factory=list)
    """When quotas were changed, until everything was taken back."""
    turns: int = 0
    """How often changes of a quota turned round, over all quotas, until then."""


class Trial:
    """A scenario under way."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._random = scenario, scenario.random()
        self._leases, self._switch, self._truth = (
            InMemoryLeases(),
            InMemorySwitch(),
            Truth(mode=scenario.mode),
        )
        default = {"users/<default>": {"producer_byte_rate": "9000000.0"}}
        self._untouched = MemoryCluster(InMemoryLeases(), default)
        for user, value in scenario.quotas.items():
            if value is not None:
                self._untouched.set_text(quota_of(user), str(value))
        nodes = deepcopy(self._untouched.nodes)
        self._traffic = Traffic(scenario, nodes, self._random)
        self._watch = Watch(scenario, self._truth, self._leases, self._traffic.rate_per_s)
        self._ledger = WatchedLedger(self._watch)
        own = self._leases if scenario.is_fenced else InMemoryLeases()
        self._cluster = WatchedCluster(own, nodes, self._watch, scenario)
        self._late: list[Callable[[], Written]] = []
        self._snapshots: list[tuple[dict[str, float | None], dict[Quota, int]]] = []
        self._batch: list[Proposal] = []
        self._has_second = False
        self._back_at_ms = 0
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Five hours of rounds, then everything is taken back."""
        for now_ms in range(ROUND_MS, LENGTH_MS + 1, ROUND_MS):
            self._traffic.run_until(now_ms)
            self._truth.now_ms = now_ms
            self._write_late()
            self._others_act()
            self._round(now_ms)
            self._traffic.run_until(now_ms + self._random.randint(0, 30_000))
            self._traffic.follow(self._cluster.nodes)
        self._check_convergence()
        self._take_everything_back()
        self._count()
        return self.outcome

    def _write_late(self) -> None:
        """What took a while comes before the next round."""
        while self._late:
            self._late.pop(0)()

    def _enforcer(self, name: str) -> Enforcer:
        scenario = self._scenario
        return Enforcer(
            TroubledCluster(self._cluster, self._ask, self._late.append),
            TroubledLedger(self._ledger, self._ask),
            InMemoryLease(self._leases, name),
            self._switch,
            guards=scenario.settings,
            exempt=scenario.exempt,
            mode_of=lambda _: self._truth.mode,
            actor=name,
        )

    def _round(self, now_ms: int) -> None:
        can_be_away = self._is_troubled and self._scenario.load is not Load.CONSTANT
        if can_be_away and self._random.random() < self._scenario.trouble:
            self._back_at_ms = now_ms + self._random.randint(1, 9) * ROUND_MS
        if now_ms < self._back_at_ms:  # nobody is there
            return
        situation, batch = self._look(now_ms)
        for name in _NAMES[: 1 + self._has_second]:
            try:
                self._enforcer(name).run(batch, situation, now_ms)
            except CrashError:
                self.outcome.crashes += 1
            except UserError:
                pass
            self.outcome.rounds += 1

    def _ask(self, call: str) -> Trouble | None:
        """What goes wrong with a call, or what others do meanwhile."""
        random = self._random
        if not self._is_troubled or random.random() >= self._scenario.trouble:
            return None
        if call in _BETWEEN and random.random() < 0.6:
            random.choice((self._edit, self._freeze, self._take_over, self._change_mode))()
            return None
        if call in ("write", "put_back"):
            return random.choice(_WRITE_TROUBLES + _CRASHES)
        return random.choice((*_CRASHES, Trouble.UNREACHABLE))

    @property
    def _is_troubled(self) -> bool:
        return self._truth.now_ms <= self._scenario.trouble_until_ms

    def _others_act(self) -> None:
        """Between rounds: operators edit, freeze, approve and roll back, and enforcers come and go."""
        random = self._random
        self._truth.mode = self._scenario.mode
        if self._truth.is_frozen and (not self._is_troubled or random.random() < 0.4):
            self._switch.unfreeze()
            self._truth.is_frozen = False
        waiting = {row.step_id.plan_id for row in self._ledger.entries() if row.event is Event.PLANNED}
        if self._truth.mode is Mode.APPROVE and waiting and random.random() < 0.5:
            with suppress(CrashError, UserError):
                self._enforcer(PERSON).approve(random.choice(sorted(waiting)), PERSON, self._truth.now_ms)
        if not self._is_troubled or random.random() >= 4 * self._scenario.trouble:
            return
        act = random.choice(
            (self._edit, self._edit, self._freeze, self._take_over, self._let_go, self._roll_back)
        )
        act()

    def _edit(self) -> None:
        user = self._random.choice(sorted(self._scenario.quotas))
        value = self._random.choice([None, float(self._random.randint(300_000, 11_000_000))])
        if value == self._value(user):
            return
        for target in (self._cluster, self._untouched):
            target.set_text(quota_of(user), None if value is None else str(value))
        self._watch.edited(quota_of(user))

    def _freeze(self) -> None:
        self._switch.freeze(Frozen(self._truth.now_ms, PERSON, "what is it doing?"))
        self._truth.is_frozen = True

    def _take_over(self) -> None:
        self._has_second = True
        self._leases.take(self._random.choice(_NAMES))

    def _change_mode(self) -> None:
        self._truth.mode = self._random.choice(list(Mode))

    def _let_go(self) -> None:
        self._leases.holder = None

    def _roll_back(self) -> None:
        plans = sorted({row.step_id.plan_id for row in self._ledger.entries()})
        if plans:
            self._leases.holder = None
            with suppress(CrashError, UserError):
                self._enforcer(PERSON).roll_back(self._random.choice(plans), self._truth.now_ms, PERSON)
            self._leases.holder = None

    def _look(self, now_ms: int) -> tuple[Situation, list[Proposal]]:
        """What is known now: late, sometimes too late, sometimes in part, and now and then the batch before again."""
        random, truth, troubled = self._random, self._truth, self._is_troubled and self._scenario.trouble > 0
        values = {user: self._value(user) for user in self._scenario.quotas}
        self._snapshots = [*self._snapshots[-1:], (values, dict(truth.edited_at_ms))]
        truth.age_ms = random.choice([10_000, 60_000, 120_000])
        if troubled and random.random() < 0.1:
            truth.age_ms = random.choice([121_000, 900_000])
        truth.is_whole = not (troubled and random.random() < 0.1)
        through_ms = now_ms - truth.age_ms
        late = random.choice([0.02, 0.3]) if troubled and random.random() < 0.2 else 0.0
        uses = {user: self._traffic.seen(user, through_ms, late) for user in self._scenario.quotas}
        values, edited = self._snapshots[0 if truth.age_ms > ROUND_MS else -1]
        situation = Situation(through_ms, through_ms, truth.is_whole, (), edited)
        if not (troubled and random.random() < 0.1):
            wildness = 0.04 if self._is_troubled else 0.0
            self._batch = proposals(self._scenario, Look(now_ms, through_ms, uses, values), wildness, random)
        return situation, self._batch

    def _value(self, user: str) -> float | None:
        quota: Quota = quota_of(user)
        return self._cluster.read([quota])[quota].value

    def _check_convergence(self) -> None:
        effects = [effect for of_quota in self._watch.effects.values() for effect in of_quota]
        self.outcome.changed_at_ms = sorted(effect.at_ms for effect in effects)
        self.outcome.turns = sum(turns_of(of_quota) for of_quota in self._watch.effects.values())
        if self._scenario.load is not Load.CONSTANT:
            return
        # One late change is chance: requests are few, so a use that is near a threshold crosses it once in a while.
        # A change leads away from its threshold: who is changed again goes round.
        for quota, of_quota in self._watch.effects.items():
            last = [effect.at_ms for effect in of_quota if effect.at_ms > LENGTH_MS * 3 // 4]
            if len(last) > 1:
                self._watch.broken.append(f"{quota.entity}: constant load, and changes at {last} ms")

    def _take_everything_back(self) -> None:
        """After two days away, what has run out is put back and the rest is rolled back: as if we had never been."""
        self._write_late()
        self._switch.unfreeze()
        self._truth.is_frozen = False
        self._leases.holder = None
        now_ms = self._truth.now_ms = LENGTH_MS + 2 * _DAY_MS
        self._truth.mode = Mode.OBSERVE
        person = self._enforcer(PERSON)
        for step in range(3):  # what is in doubt is settled by then
            now_ms += step * 10 * MINUTE_MS
            self._truth.now_ms = now_ms
            person.run([], Situation(now_ms, now_ms, True), now_ms)
            for plan_id in reversed(
                list(dict.fromkeys(row.step_id.plan_id for row in self._ledger.entries()))
            ):
                try:
                    person.roll_back(plan_id, now_ms, PERSON)
                except UserError:
                    continue  # another plan lies on top of it, and comes first
        if self._cluster.nodes != self._untouched.nodes:
            self._watch.broken.append(f"taken back: {self._cluster.nodes}, was {self._untouched.nodes}")

    def _count(self) -> None:
        rows = self._ledger.entries()
        self.outcome.events.update(row.event.value for row in rows)
        self.outcome.refusals.update(row.guard for row in rows if row.guard is not None)
        self.outcome.requests = self._traffic.sent
        self.outcome.broken = self._watch.broken


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
    outcomes: list[Outcome] = []
    for number in range(scenarios):
        outcomes.append(Trial(draw(seed, number)).run())
        report_progress(number + 1)
    broken = [f"{number}: {what}" for number, outcome in enumerate(outcomes) for what in outcome.broken]
    return Summary(
        seed,
        scenarios,
        requests=sum(outcome.requests for outcome in outcomes),
        rounds=sum(outcome.rounds for outcome in outcomes),
        crashes=sum(outcome.crashes for outcome in outcomes),
        events=dict(sum((outcome.events for outcome in outcomes), Counter[str]()).most_common()),
        refusals=dict(sum((outcome.refusals for outcome in outcomes), Counter[str]()).most_common()),
        broken=len(broken),
        first_broken=tuple(broken[:_MOST_NAMED]),
    )
