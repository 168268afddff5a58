"""The guards: each checks one condition of a change. All are asked when it is planned and again before it is sent.

A guard returns None, or one sentence that explains its objection. The log names the first guard that objects. Guards
that ask servers come last, and the kill switch is the very last: nothing comes between its answer and the row
`sending`. While the switch is on, it is named before every other guard that objects.

The change of a person is based on a reason, not on decisions, and may be as large as the bounds allow. The refusal
names all guards that object to it, each with the key to edit.
No option leaves a guard out. Only tests do, by replacing `GUARDS`, to show that each guard is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kquota_spark.enforce.changes import Mode, Proposal, Quota
from kquota_spark.enforce.guard_settings import Exempt, GuardSettings
from kquota_spark.enforce.log_state import DAY_MS, HOUR_MS, LogState, Move, Step
from kquota_spark.enforce.ports import Frozen, Held
from kquota_spark.enforce.writing import LATE_WRITE_MS
from kquota_spark.formats.text.person_units import person_ms, person_span, quota_texts
from kquota_spark.model.quotas.rules import MOST_SKEW_MS, is_ahead


@dataclass(frozen=True, slots=True)
class Situation:
    """How fresh and how complete the tables are; times in epoch ms, None if nothing is known."""

    decided_through_ms: int | None
    """Newest second for which the decisions of every broker are known."""
    rules_known_through_ms: int | None
    is_view_whole: bool
    """Whether all quota nodes could be read and every broker was heard from."""
    problems: tuple[str, ...] = ()
    """The reasons why it is not complete, for people."""
    edited_at_ms: Mapping[Quota, int] = field(default_factory=dict)
    """Epoch ms of the newest edit that the watch has seen, by quota."""


@dataclass(frozen=True, slots=True)
class Check:
    """All data that a guard may use."""

    proposal: Proposal
    step: Step | None
    """The step in the log; None while it is being planned."""
    held: Held
    mode: Mode
    """The present mode of its policy."""
    situation: Situation
    state: LogState
    settings: GuardSettings
    exempt: Exempt
    now_ms: int
    beside: tuple[Proposal, ...]
    """Earlier changes of the same plan: those planned so far, or those sent so far."""
    refusal: Callable[[], str | None]
    """Asks the cluster whether it would accept the value."""
    is_lease_held: Callable[[], bool]
    frozen: Callable[[], Frozen | None]
    needs_second_person: bool = False
    """Whether an approval by the author of the step is not enough."""
    policy_file: str = "the policy file"
    """The file with the settings of the guards, for messages."""

    @property
    def planned_at_ms(self) -> int:
        """When it was planned, epoch ms."""
        return self.now_ms if self.step is None else self.step.planned.at_ms

    def is_own_edit(self, edited_at_ms: int) -> bool:
        """Whether an edit that the watch has seen is our newest change, and its value is still set."""
        moves = self.state.moves.get(self.proposal.quota)
        if not moves or moves[-1].after != self.held.value:
            return False
        return -MOST_SKEW_MS <= edited_at_ms - moves[-1].at_ms <= LATE_WRITE_MS


def mode(check: Check) -> str | None:
    """Object if the present mode of the policy does not allow it; the mode may have changed after the approval."""
    if check.mode is Mode.OFF:
        return _by("mode", "the policy is off", check)
    if check.step is None or check.mode is Mode.ENFORCE:
        return None
    if check.mode is Mode.OBSERVE:
        return _by("mode", "the policy may only observe", check)
    if check.step.approved is None:
        return "nobody has approved it"
    if check.needs_second_person and check.step.is_approved_by_author:
        sentence = f"{check.step.approved.actor} planned and approved it: a second person has to approve it"
        return (
            f"{sentence} (enforcement.approval in the settings)" if check.proposal.is_override else sentence
        )
    return None


def stale(check: Check) -> str | None:
    """Object if decisions, rules or the plan itself are too old; a time in the future does not count as fresh."""
    for what, through_ms in (
        ("decisions", check.situation.decided_through_ms),
        ("rules", check.situation.rules_known_through_ms),
    ):
        if (sentence := _stale(what, through_ms, check)) is not None:
            return sentence
    expires_at_ms = check.proposal.expires_at_ms
    if expires_at_ms is not None and expires_at_ms <= check.now_ms:
        return "its time is over already"
    if is_ahead(check.planned_at_ms, check.now_ms):
        return f"it was planned at {_utc(check.planned_at_ms)}, ahead of this clock"
    is_approved = check.step is not None and check.step.approved is not None
    key = "approve_within" if is_approved else "max_age"
    age_ms, most_ms = check.now_ms - check.planned_at_ms, getattr(check.settings, key)
    if age_ms > most_ms:
        sentence = f"it was planned {person_ms(age_ms)} ago, more than {person_span(most_ms)}"
        return _by(f"guards.{key}", sentence, check)
    return None


def _stale(what: str, through_ms: int | None, check: Check) -> str | None:
    max_age_ms = check.settings.max_age
    if through_ms is None:
        return f"no {what} are known"
    if is_ahead(through_ms, check.now_ms):
        return f"{what} are known through {_utc(through_ms)}, ahead of this clock"
    if check.now_ms - through_ms > max_age_ms:
        age = person_ms(check.now_ms - through_ms)
        return _by("guards.max_age", f"{what} are {age} old, more than {person_span(max_age_ms)}", check)
    return None


def partial(check: Check) -> str | None:
    """Object if the tables do not cover all brokers and all quota nodes."""
    if check.situation.is_view_whole:
        return None
    return "; ".join(check.situation.problems) or "not all of the cluster is seen"


def uncertain(check: Check) -> str | None:
    """Object if too few of the decisions that it is based on are certain."""
    evidence, least = check.proposal.evidence, check.settings.min_certain_percent
    if evidence.seconds <= 0:
        return "it rests on no decision"
    percent = 100 * evidence.certain_seconds / evidence.seconds
    return (
        None if percent >= least else f"{percent:.1f} % of its decisions are certain, less than {least:g} %"
    )


def exempt(check: Check) -> str | None:
    """Object if the entity is exempt: enforcement never changes its quotas."""
    found = check.exempt.holds(check.proposal.quota.entity)
    return None if found is None else f"exempt by {found}"


def owner(check: Check) -> str | None:
    """Object if another tool manages the quota, or if it was edited after the decisions that the change is based on.

    Our own newest change is not such an edit. The value of a person is based on no decisions.
    """
    if check.held.owner:
        return f"managed by {check.held.owner}"
    if tool := check.settings.owner_of(check.proposal.quota.entity):
        return _by("guards.owners", f"managed by {tool}", check)
    edited_at_ms = check.situation.edited_at_ms.get(check.proposal.quota)
    if (
        check.proposal.is_override
        or edited_at_ms is None
        or edited_at_ms <= check.proposal.evidence.to_ms
        or check.is_own_edit(edited_at_ms)
    ):
        return None
    ago = person_ms(max(0, check.now_ms - edited_at_ms))
    return f"edited {ago} ago, after the decisions that this rests on"


def changed(check: Check) -> str | None:
    """Object if the cluster no longer holds the value behind the decision, or holds the wanted value already."""
    held, before, after = check.held.value, check.proposal.before, check.proposal.after
    key = check.proposal.quota.key
    if held != before:
        is_held, was = quota_texts(key, held, before)
        return f"it is {is_held} in the cluster, and was {was} when this was decided"
    if held == after:
        [is_held] = quota_texts(key, held)
        return f"it is {is_held} in the cluster already"
    return None


def bounds(check: Check) -> str | None:
    """Object if the key has no bounds, the value is not between its floor and ceiling, or the change is a removal."""
    limits, after = check.settings.bounds_of(check.proposal.quota.key), check.proposal.after
    if limits is None:
        return f"there are no bounds for {check.proposal.quota.key.value}"
    if after is None:
        return "without a value there is no ceiling"
    if limits.floor <= after <= limits.ceiling:
        return None
    wanted, floor, ceiling = quota_texts(check.proposal.quota.key, after, limits.floor, limits.ceiling)
    return f"{wanted} is not between {floor} and {ceiling}"


def step(check: Check) -> str | None:
    """Object if the change is larger than the largest step from the limit before."""
    limits = check.settings.bounds_of(check.proposal.quota.key)
    before, after = check.proposal.limit_before, check.proposal.after
    if limits is None or before is None or after is None:
        return None
    low, high = limits.step_from(before)
    if low <= after <= high:
        return None
    was, wanted = quota_texts(check.proposal.quota.key, before, after)
    return f"from {was} to {wanted} is more than {limits.largest_step_percent:g} %"


def hold(check: Check) -> str | None:
    """Object if the quota is lifted, another change of it is under way, or the hold time is not over.

    The hold time keeps policies from changing a quota again and again. A person may change it at once.
    """
    if (sentence := _under_way(check)) is not None or check.proposal.is_override:
        return sentence
    if moves := check.state.counted_moves(check.proposal.quota):
        since_ms, hold_ms = check.now_ms - moves[-1].at_ms, check.settings.hold_time
        if since_ms < hold_ms:
            ago = person_ms(max(0, since_ms))
            return f"enforcement itself changed it {ago} ago, and hold_time is {person_span(hold_ms)}"
    return None


def _under_way(check: Check) -> str | None:
    """The other change of the quota that is under way, or its lift."""
    quota, state = check.proposal.quota, check.state
    if any(other.quota == quota for other in check.beside):
        return "another change of this plan is for the same quota"
    for other in state.open_steps(quota):
        is_waiting = check.now_ms - other.planned.at_ms <= check.settings.approve_within
        if other is not check.step and other.approved is not None and is_waiting:
            return f"{other.step_id.plan_id} is approved and changes the same quota"
    if any(other.is_in_doubt for other in state.live.get(quota, ())):
        return "it is not known yet what became of the change before"
    if any(other.proposal.is_lift for other in state.live.get(quota, ())):
        return "it is lifted: kquota lift --end puts it back"
    return None


def budget(check: Check) -> str | None:
    """Object if the maximum of changes of all quotas within an hour is reached."""
    most = check.settings.changes_per_hour
    planned = len(check.beside) if check.step is None else 0
    if check.state.sent_since(check.now_ms - HOUR_MS) + planned < most:
        return None
    return f"there are {most} changes within an hour already"


def plan_size(check: Check) -> str | None:
    """Object if the plan has its maximum of changes already."""
    most = check.settings.changes_per_plan
    return None if len(check.beside) < most else f"its plan has {most} changes already"


def censored(check: Check) -> str | None:
    """Object if it lowers a quota because of low traffic, and this quota itself kept the traffic low.

    A penalty is meant for throttled clients, so it may lower the quota, but only temporarily. Traffic above a budget is
    high, throttled or not.
    """
    proposal = check.proposal
    throttled = proposal.evidence.throttled_seconds
    if not proposal.is_lowering or throttled <= 0 or proposal.evidence.is_over_budget:
        return None
    if proposal.is_penalty:
        return None if proposal.expires_at_ms is not None else "a penalty without an end"
    return f"throttled in {throttled} of {proposal.evidence.seconds} s: what was wanted is not known"


def unstable(check: Check) -> str | None:
    """Object if our changes of the quota reverse too often within a day."""
    proposal, most = check.proposal, check.settings.reversals_per_day
    planned = Move(check.now_ms, proposal.before, proposal.after)
    found = check.state.reversals_since(check.now_ms - DAY_MS, proposal.quota, planned)
    return None if found <= most else f"it would turn round {found} times within a day, more than {most}"


def restorable(check: Check) -> str | None:
    """Object if the present state could not be restored later."""
    if check.held.note is not None:
        return None
    return check.held.problem or "what is there could not be put back"


def validate(check: Check) -> str | None:
    """Object if the cluster would refuse the value."""
    return check.refusal()


def lease(check: Check) -> str | None:
    """Object if this enforcer does not hold the lease; planning sends nothing and needs no lease."""
    if check.step is None or check.is_lease_held():
        return None
    return "another enforcer holds the lease"


def frozen(check: Check) -> str | None:
    """Object if the kill switch is on."""
    found = check.frozen()
    return None if found is None else f"frozen by {found.actor}: {found.reason}"


Guard = Callable[[Check], str | None]

LEASE, STALE, FROZEN = lease.__name__, stale.__name__, frozen.__name__
_OF_POLICIES = frozenset({uncertain.__name__, step.__name__, censored.__name__, unstable.__name__})
"""Guards that check decisions, the step from the limit before, or turns: they do not apply to a value of a person."""
_IN_ORDER = (
    *(mode, stale, partial, uncertain, exempt, owner, changed, bounds, step),
    *(hold, budget, plan_size, censored, unstable, restorable),
    *(validate, lease, frozen),  # these ask servers
)
GUARDS: tuple[tuple[str, Guard], ...] = tuple((guard.__name__, guard) for guard in _IN_ORDER)
"""The guards by their names in the log, in the order in which they are asked."""


_KEYS: Mapping[str, str] = {
    exempt.__name__: "exempt",
    bounds.__name__: "guards.bounds.{key}",
    budget.__name__: "guards.changes_per_hour",
    plan_size.__name__: "guards.changes_per_plan",
}
"""Key of the policy file by guard. `mode`, `stale` and `owner` put their keys into their own sentences."""


def refusal(check: Check) -> tuple[str, str] | None:
    """The guard that objects, and its reason; None if all agree.

    For the change of a person, the sentence has all guards that object, each with the key to edit. For a policy the
    first guard is enough.
    """
    found: list[tuple[str, str]] = []
    is_override = check.proposal.is_override
    for name, guard in GUARDS:
        is_asked = not (is_override and name in _OF_POLICIES) and not (found and not is_override)
        if (is_asked or name == FROZEN) and (sentence := guard(check)) is not None:
            found.append((name, _with_key(name, sentence, check) if is_override else sentence))
    found.sort(key=lambda one: one[0] != FROZEN)
    if not found:
        return None
    [(name, sentence), *others] = found
    return name, "; ".join([sentence, *(f"{other}: {why}" for other, why in others if is_override)])


def _with_key(name: str, sentence: str, check: Check) -> str:
    """The sentence of a guard, with the key to edit or the command to run."""
    if name == FROZEN:
        return f"{sentence} (kquota unfreeze)"
    if (key := _KEYS.get(name)) is None:
        return sentence
    return _by(key.format(key=check.proposal.quota.key.value), sentence, check)


def _by(key: str, sentence: str, check: Check) -> str:
    """The sentence, with the key of the policy file that caused it if a person requested the change."""
    return f"{sentence} ({key} in {check.policy_file})" if check.proposal.is_override else sentence


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
