"""A plan reads like a diff within 100 columns, and names that clients chose do no harm in it."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from kquota_spark.cli.enforce.plan_page import last_entries, print_plan, steps_report
from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import json_report
from kquota_spark.enforce.changes import Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.formats.text.escape import width
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey

NOW_MS = 1_795_239_600_000  # 2026-11-21 05:40:00 UTC
EVIDENCE = Evidence(NOW_MS - 600_000, NOW_MS - 5_000, 595, 590, 300, {"peak_rate_per_s": 612_000.0})
CUT = Proposal(
    Quota(Entity("alice", "etl"), QuotaKey.PRODUCER_BYTE_RATE), 300_000.0, 150_000.0, "penalty",
    "above its quota for 300 of 600 s", NOW_MS + 900_000, EVIDENCE,
    "it would have been throttled for 41 s more",
)  # fmt: skip
PLANNED = LogEntry(StepId("p1", 1), Event.PLANNED, NOW_MS, CUT, Mode.APPROVE, "enforcer")
SHARE = Proposal(
    Quota(Entity(None, DEFAULT), QuotaKey.REQUEST_PERCENTAGE), None, 25.5, "share", "no limit is set", None, EVIDENCE
)  # fmt: skip
REFUSED = LogEntry(
    StepId("p1", 2), Event.REFUSED, NOW_MS, SHARE, Mode.APPROVE, "enforcer", guard="bounds",
    detail="request_percentage has no bounds",
)  # fmt: skip


def printed(*entries: LogEntry) -> str:
    out = io.StringIO()
    print_plan(entries, Page(out))
    assert max(map(width, out.getvalue().splitlines())) <= 100
    return out.getvalue()


def test_a_plan_says_who_what_why_until_when_and_what_was_refused_by_which_guard() -> None:
    assert (
        printed(REFUSED, PLANNED)
        == """\
plan p1  approve  1 change, 1 refused

  1 ~ users/alice/clients/etl
      change     producer_byte_rate 300 kB/s -> 150 kB/s (-50 %)
      why        penalty: above its quota for 300 of 600 s
      until      2026-11-21 05:55:00 UTC
      yesterday  it would have been throttled for 41 s more

  2 ! clients/<default>
      change     request_percentage not set -> 25.5 %
      why        share: no limit is set
      until      stays
      refused    bounds: request_percentage has no bounds
"""
    )


def test_a_removal_and_a_first_value_have_the_marks_of_a_diff() -> None:
    removal = replace(PLANNED, proposal=replace(CUT, after=None))
    first = replace(PLANNED, proposal=replace(CUT, before=None))
    assert (
        "  1 - users/alice/clients/etl\n      change     producer_byte_rate 300 kB/s -> not set\n"
        in printed(removal)
    )
    assert (
        "  1 + users/alice/clients/etl\n      change     producer_byte_rate not set -> 150 kB/s\n"
        in printed(first)
    )


def test_a_plan_of_nothing_says_so() -> None:
    assert printed() == "nothing to change\n"


def test_the_newest_row_of_a_step_is_its_state() -> None:
    applied = replace(PLANNED, event=Event.APPLIED, at_ms=NOW_MS + 1_000)
    assert last_entries([PLANNED, REFUSED, applied]) == [applied, REFUSED]
    assert "      now        in force\n" in printed(applied)


def test_names_and_reasons_of_others_are_escaped_in_every_form() -> None:
    hostile = "\x1b[2J\n=cmd()\u202e" + "x" * 200
    quota = Quota(Entity(hostile, None), QuotaKey.CONSUMER_BYTE_RATE)
    entry = replace(
        REFUSED, detail=hostile, proposal=replace(CUT, quota=quota, reason=hostile, would_have=hostile)
    )  # fmt: skip
    text = printed(entry)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert all(line.startswith((" ", "plan ")) or not line for line in text.splitlines())
    report = steps_report("kquota enforce show", [entry])
    assert "\x1b" not in json_report(report)
    [row] = json.loads(json_report(report))["rows"]
    assert (row["reason"], row["expires_at"], row["guard"]) == (hostile, "2026-11-21T05:55:00Z", "bounds")
    assert json.loads(row["numbers"]) == {"peak_rate_per_s": 612_000.0}
