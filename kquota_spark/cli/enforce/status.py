"""`kquota enforce status`: the mode, the kill switch, changes in force, and waiting plans."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kquota_spark.cli.enforce.freeze import reading_text
from kquota_spark.cli.enforce.plan_page import steps_report
from kquota_spark.cli.enforce.status_page import print_holder, print_steps, print_switches, values_of
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.cli.text.page import Page
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Event, LogEntry
from kquota_spark.enforce.log_state import LogState
from kquota_spark.enforce.policies.policy import Policies
from kquota_spark.enforce.ports import Holder
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.errors import UserError
from kquota_spark.process.clock import now_ms

_REFUSALS = 5


def _find(asked: Asked) -> Found:
    """The status. If the lease cannot be read, the error is printed in its place.

    Raises:
        UserError: the policies or the log cannot be read.
    """
    from kquota_spark.enforcement.policies import load_policies

    settings, time_ms = asked.settings, now_ms()
    policies = load_policies(Path(settings.enforcement.policy_file))
    sections = _sections(EnforcementLog(settings).entries(), policies, time_ms, asked.limit)
    switch = FreezeSwitch(settings)
    frozen = switch.frozen()

    def print_all(page: Page) -> None:
        print_switches(policies, frozen, page)
        page.paragraph("", reading_text(switch, time_ms))
        for title, entries in sections.items():
            print_steps(title, entries, policies, time_ms, page)
        # Last, because the cluster may answer slowly.
        sys.stdout.flush()
        print_holder(*_holder(settings), time_ms, page)

    if asked.is_for_people:
        return Found((), (), page=print_all)
    report = steps_report("", [entry for entries in sections.values() for entry in entries])
    envelope = values_of(policies, switch, *_holder(settings))
    return Found(report.columns, report.rows, envelope=envelope, is_limited=True, times=report.times)


def _sections(
    log: Sequence[LogEntry], policies: Policies, time_ms: int, limit: int | None
) -> dict[str, list[LogEntry]]:
    """The newest row of each step in force, waiting or refused, by title."""
    state = LogState.of(log)
    live = [step.last for steps in state.live.values() for step in steps]
    waiting = [step.last for step in state.waiting(time_ms, policies.guards.approve_within)]
    refused = [entry for entry in reversed(log) if entry.event is Event.REFUSED]
    return {
        "in force": live[:limit],
        "waiting": waiting[:limit],
        "refused, newest first": refused[:_REFUSALS],
    }


def _holder(settings: Settings) -> tuple[Holder | None, str]:
    from kquota_spark.enforcement.assembly import enforcement_edges

    try:
        with enforcement_edges(settings) as edges:
            return edges.lease.holder(), ""
    except UserError as error:
        return None, str(error)


QUESTION = Question(
    command="enforce status",
    table=None,
    find=_find,
    options=None,
    period=None,
    has_agreement=False,
    about="mode, kill switch, lease, changes in force with their ends, plans that wait, newest refusals",
)
add_command = QUESTION.add_to
