"""Changes of enforcement to quotas that a person is about to edit by hand, and the effect of the edit on them.

A quota that a person sets stays: if `enforce.writing` finds another value, it abandons its own change and restores
nothing. Only the exact value that enforcement set counts as its own; it is reverted when it expires.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kquota_spark.cli.quotas.quota_edits import exact_text
from kquota_spark.config.roots import local_path
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import LIFT
from kquota_spark.enforce.log_state import LogState, Step
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import AnyEntity, Entity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.model.quotas.quota_types import AnyKey
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.reading import utc_text

_SOON = {"connect_timeout": "1s", "timeout": "2s", "max_retries": "0"}
"""Options of an object store for a short wait: a note is not worth a long one."""


Held = Mapping[tuple[AnyEntity, AnyKey], Step]
"""The newest change of enforcement to each quota that is in force, or may be."""


def held_steps(settings: Settings | None, entities: Iterable[AnyEntity]) -> Held:
    """The changes of enforcement to these entities; empty if the log cannot be read.

    Args:
        settings: settings of the tables; None if there are none.
        entities: only these.
    """
    of = {entity for entity in entities if isinstance(entity, Entity)}
    if settings is None or not of:
        return {}
    from kquota_spark.enforcement.edges.log import EnforcementLog

    if local_path(settings.tables) is None:
        # Remove other spellings first: if an option has two spellings, the store may use either of them.
        others = {name: to for name, to in settings.storage_options.items() if name.lower() not in _SOON}
        settings = settings.changed(storage_options={**others, **_SOON})
    try:
        with delta_errors("the enforcement log cannot be read"):
            state = LogState.of(EnforcementLog(settings).entries(of))
    except UserError:
        return {}  # the edit does not depend on the log
    return {(quota.entity, quota.key): steps[-1] for quota, steps in state.live.items() if steps}


def held_notes(held: Held, edits: Iterable[QuotaEdit], now_ms: int) -> list[str]:
    """One sentence per edit of a quota that still has enforcement's value, also if the edit keeps that value."""
    found = ((held.get((edit.entity, edit.key)), edit) for edit in edits)
    notes = (_note(step, edit, now_ms) for step, edit in found if step is not None)
    return [note for note in notes if note is not None]


def _note(step: Step, edit: QuotaEdit, now_ms: int) -> str | None:
    proposal, plan_id = step.proposal, step.step_id.plan_id
    if proposal.after != edit.before:
        return None  # another person or tool has set it since
    is_kept = edit.after == edit.before
    stays = "it stays removed" if edit.after is None else "what you set stays"
    before, until_ms = exact_text(proposal.before), proposal.expires_at_ms
    quota = f"{edit.entity} {edit.key.value}"
    if proposal.policy == LIFT:
        then = f"puts {before} back" if is_kept else f"does not put {before} back: {stays}"
        return f"{quota}: kquota lift has lifted it, and kquota lift --end {then}"
    has_set = (
        f"{quota}: enforcement has set it to {exact_text(proposal.after)} ({proposal.policy}, plan {plan_id})"
    )
    if until_ms is None:
        return None if is_kept else f"{has_set}, with no end: {stays}"
    is_over = " (over: is kquota enforce run up?)" if until_ms <= now_ms else ""
    has_set = f"{has_set} until {utc_text(until_ms)}{is_over}"
    if is_kept:
        then = "it is removed" if proposal.before is None else f"{before} comes back"
        return f"{has_set}: then {then}; to set it for good run kquota enforce rollback {plan_id} first"
    then = "it is not removed then" if proposal.before is None else f"{before} does not come back then"
    return f"{has_set}: {stays}, {then}"
