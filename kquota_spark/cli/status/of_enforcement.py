"""The state of enforcement: enforcer, kill switch, lifted quotas. Only the enforcer's state needs the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from kquota_spark.cli.enforce.freeze import frozen_text, reading_text
from kquota_spark.cli.options import SettingsPlace
from kquota_spark.cli.status.part import Part, State, command_text
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import LogEntry
from kquota_spark.enforce.lifting import lifts
from kquota_spark.enforce.log_state import LogState
from kquota_spark.enforce.ports import Holder
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.enforcement.policies import load_policies
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import counted

ANSWER_S = 2.0
"""Maximum wait for the cluster's answer, s."""
_CHECKS = 6
"""Check intervals after which an enforcer without a check is silent."""


class HolderQuestion:
    """Queries the cluster for the enforcer in a thread, so that a silent cluster does not delay the other parts."""

    def __init__(self, settings: Settings) -> None:
        wait = Duration(round(ANSWER_S * 1_000))
        quotas = settings.quotas.changed(connect_timeout=min(settings.quotas.connect_timeout, wait))
        self._settings = settings.changed(quotas=quotas)
        self._holder: Holder | None = None
        self._problem = f"the cluster does not answer within {ANSWER_S:g} s"
        self._until_s = time.monotonic() + ANSWER_S
        self._thread = threading.Thread(target=self._ask, name="holder", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        from kquota_spark.enforcement.assembly import enforcement_edges

        try:
            with enforcement_edges(self._settings) as edges:
                self._holder = edges.lease.holder()
            self._problem = ""
        except UserError as error:
            self._problem = str(error)

    def answer(self) -> tuple[Holder | None, str]:
        """The last holder of the lease (None if there was none), and the error if it is unknown."""
        self._thread.join(max(0.0, self._until_s - time.monotonic()))
        return self._holder, self._problem


def enforcer_part(
    settings: Settings, log: Sequence[LogEntry], asked: HolderQuestion, place: SettingsPlace, now_ms: int
) -> Part:
    """The enforcer: its mode, the number of changes in force and waiting, and whether one runs.

    Args:
        settings: source of the quotas, the policy file, the interval of checks.
        log: rows of `enforcement_log`, oldest first.
        asked: the query to the cluster, started before.
        place: the settings as the caller named them, for the next command.
        now_ms: epoch ms.
    """
    if settings.quotas.source == "file":
        return Part("enforcer", State.OFF, "quotas of a file are not enforced")
    try:
        policies = load_policies(Path(settings.enforcement.policy_file))
    except UserError as error:
        return _without_policies(settings, error, place, has_log=bool(log))
    folded = LogState.of(log)
    live = sum(map(len, folded.live.values()))
    waiting = len(folded.waiting(now_ms, policies.guards.approve_within))
    figure = f"mode {policies.mode.name.lower()}, {counted(live, 'change')} in force, {waiting} waiting"
    holder, problem = asked.answer()
    if problem:
        state, then = (State.FAIL, command_text("doctor --before", place)) if log else (State.OFF, "")
        return Part("enforcer", state, f"{figure}; {problem}", None, then)
    start = command_text("enforce run", place._replace(tables=None))
    last = _last_enforcer(settings, holder)
    if last is None:
        held = "" if holder is None or not holder.command else f"; {_command_text(holder)}"
        state, then = (State.WARN, start) if log else (State.OFF, "")
        return Part("enforcer", state, f"{figure}; none has run yet{held}", None, then)
    silent_ms = _CHECKS * settings.enforcement.trigger + settings.enforcement.lease_time
    is_well = last.is_holding or now_ms - last.since_ms <= silent_ms
    state, silent, then = (State.OK, "", "") if is_well else (State.WARN, " is silent", start)
    return Part("enforcer", state, f"{figure}; {last.name}{silent}", last.since_ms, then)


def _without_policies(settings: Settings, error: UserError, place: SettingsPlace, *, has_log: bool) -> Part:
    """The enforcer if its policy file cannot be used: nobody set it up if there is no file and no log."""
    policy_file = Path(settings.enforcement.policy_file)
    if has_log:
        then = command_text("enforce status", place)
        return Part("enforcer", State.FAIL, str(error).splitlines()[0], None, then)
    if not policy_file.exists():
        return Part("enforcer", State.OFF, f"not set up: no policy file {policy_file}")
    return Part("enforcer", State.OFF, str(error).splitlines()[0])


def _last_enforcer(settings: Settings, holder: Holder | None) -> Holder | None:
    """The last enforcer. If a person's command took the lease since, the enforcer's own note has the time."""
    if holder is None or not holder.command:
        return holder
    reading = FreezeSwitch(settings).reading()
    return None if reading is None else Holder(reading.reader, reading.at_ms, False)


def _command_text(holder: Holder) -> str:
    return f"the lease {'is' if holder.is_holding else 'was'} held by {holder.command} on {holder.name}"


def freeze_part(settings: Settings, place: SettingsPlace, now_ms: int) -> Part:
    """The kill switch: whether enforcement is frozen."""
    switch = FreezeSwitch(settings)
    frozen = switch.frozen()
    if frozen is None:
        return Part("freeze", State.OK, "not frozen")
    if not frozen.since_ms:
        return Part("freeze", State.FAIL, frozen.reason, None, command_text("enforce status", place))
    figure = f"{frozen_text(frozen)}; {reading_text(switch, now_ms)}"
    return Part("freeze", State.WARN, figure, frozen.since_ms, command_text("unfreeze", place))


def lifted_part(log: Sequence[LogEntry], place: SettingsPlace) -> Part:
    """The quotas that `kquota lift` has lifted."""
    found = lifts(LogState.of(log))
    if not found:
        return Part("lifted", State.OK, "no quota is lifted")
    since_ms = min((lift.sending or lift.planned).at_ms for lift in found)
    return Part(
        "lifted",
        State.WARN,
        f"{counted(len(found), 'quota')} lifted",
        since_ms,
        command_text("lift --list", place),
    )
