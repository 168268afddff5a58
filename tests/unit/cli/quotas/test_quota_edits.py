"""Quota edits in the log: what AlterClientQuotas asked for, who asked, and whether for itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.findings.findings import Finding, Kind, Severity
from kquota_spark.formats.request_log.line import RequestLogParser, Unreadable
from kquota_spark.reports.clients.findings import findings
from tests.support.logs.log_lines import CREATE_TOPICS_V7_REFUSED, METADATA_V12
from tests.support.places import DATA
from tests.support.tables.table_rows import T0_MS, request, usage, write_table


def edit_line(request_body: Any, key: int = 49) -> bytes:
    """CREATE_TOPICS of the log with another request: what surrounds it is the same for all."""
    head, _, rest = CREATE_TOPICS_V7_REFUSED.decode().partition('"request":')
    _, _, tail = rest.partition(',"response":')
    head = head.replace('"requestApiKey":19', f'"requestApiKey":{key}').replace(
        "CREATE_TOPICS", "ALTER_CLIENT_QUOTAS"
    )
    return f'{head}"request":{json.dumps(request_body)},"response":{tail}'.encode()


def altered(
    *entries: tuple[Sequence[tuple[str, str | None]], list[dict[str, Any]]], **more: Any
) -> str | None:
    body = {
        "entries": [
            {"entity": [{"entityType": kind, "entityName": name} for kind, name in entity], "ops": ops}
            for entity, ops in entries
        ],
        "validateOnly": False,
        **more,
    }
    return RequestLogParser().parse(edit_line(body)).altered_quotas


SET = {"key": "producer_byte_rate", "value": 180000.0, "remove": False}
REMOVE = {"key": "consumer_byte_rate", "value": 0.0, "remove": True}


@pytest.mark.parametrize(
    ("entity", "name"),
    [
        ([("user", "alice"), ("client-id", "etl")], "users/alice/clients/etl"),
        ([("client-id", None), ("user", "CN=a,OU=x")], "users/CN%3Da%2COU%3Dx/clients/<default>"),
        ([("user", None)], "users/<default>"),
        ([("user", "<default>")], "users/%3Cdefault%3E"),
        ([("ip", "10.0.0.1")], "ips/10.0.0.1"),
        ([("ip", None)], "ips/<default>"),
        ([("ip", "a/b")], "ip=a/b"),  # nothing that Kafka would take: kept as asked for
        ([("group", "pay")], "group=pay"),
        ([], ""),
    ],
)
def test_entities_are_named_as_in_the_tables(entity: list[tuple[str, str | None]], name: str) -> None:
    text = altered((entity, [SET, REMOVE]))
    assert text is not None
    assert json.loads(text) == [[name, "producer_byte_rate", 180_000.0], [name, "consumer_byte_rate", None]]


def test_asking_whether_one_could_is_no_edit() -> None:
    assert altered(([("user", "alice")], [SET]), validateOnly=True) is None


def test_a_hundred_edits_of_a_request_are_kept() -> None:
    text = altered(*(([("user", f"u{number}")], [SET]) for number in range(101)))
    assert text is not None
    assert [entity for entity, _, _ in json.loads(text)] == [f"users/u{number}" for number in range(100)]


def test_only_that_api_is_looked_at() -> None:
    body = {"entries": [{"entity": [], "ops": [SET]}]}
    assert RequestLogParser().parse(edit_line(body, key=48)).altered_quotas is None
    assert RequestLogParser().parse(METADATA_V12).altered_quotas is None


@pytest.mark.parametrize("body", [{}, {"entries": [{"entity": []}]}, {"entries": 1}, []])
def test_another_shape_is_refused(body: Any) -> None:
    with pytest.raises(Unreadable, match="JSON: "):
        RequestLogParser().parse(edit_line(body))


def test_the_edits_of_a_real_kraft_broker() -> None:
    parser, found = RequestLogParser(), []
    for line in gzip.decompress(
        (DATA / "kraft39" / "broker-1.kafka-request.log.gz").read_bytes()
    ).splitlines():
        parsed = parser.parse(line)
        if parsed.altered_quotas is not None and not parsed.is_forwarded:
            found.append((parsed.user, json.loads(parsed.altered_quotas)))
    assert [user for user, _ in found] == ["admin"] * 4
    assert [edits for _, edits in found[1:]] == [
        [["users/bob", "producer_byte_rate", 110_000.0]],
        [["users/<default>/clients/<default>", "producer_byte_rate", None]],
        [["users/<default>", "producer_byte_rate", None]],
    ]


def edits_of(root: Path, *edits: list[Any], user: str = "alice", **changed: Any) -> list[Finding]:
    row = request(
        0, T0_MS, api_key=49, quota_type=None, user=user, altered_quotas=json.dumps(edits), **changed
    )
    write_table(root, "requests", row)
    write_table(root, "usage", usage(0))
    return findings(Settings(cluster_id="demo", tables=str(root)), kinds=[Kind.QUOTA_EDIT])


def test_an_edit_is_told_with_its_editor_and_its_rows(tmp_path: Path) -> None:
    [finding] = edits_of(
        tmp_path, ["users/bob", "producer_byte_rate", 1e6], ["clients/<default>", "consumer_byte_rate", None]
    )
    assert (finding.severity, finding.subject) == (Severity.INFO, "user alice")
    assert finding.sentence == (
        "asked to change 2 quotas: users/bob producer_byte_rate 1,000,000, clients/<default> consumer_byte_rate removed"
    )
    assert finding.evidence[1] == {
        "time_ms": T0_MS, "broker_id": 1, "client_id": "etl", "entity": "clients/<default>",
        "key": "consumer_byte_rate", "value": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("entity", "is_own"),
    [
        ("users/CN%3Dalice", True),
        ("users/CN%3Dalice/clients/<default>", True),
        ("users/<default>", False),
        ("users/CN=alice", True),  # as asked for, the same user
        ("users/alice", False),
        ("clients/CN%3Dalice", False),
        ("group=CN=alice", False),
    ],
)
def test_an_edit_of_the_editors_own_quota_is_flagged(tmp_path: Path, entity: str, is_own: bool) -> None:
    [finding] = edits_of(tmp_path, [entity, "producer_byte_rate", 9e9], user="CN=alice")
    assert (finding.severity is Severity.WARNING, "its own quota" in finding.sentence) == (is_own, is_own)


def test_edits_are_told_by_editor_and_hour(tmp_path: Path) -> None:
    def asked(number: int, minute: int, user: str) -> dict[str, Any]:
        edits = [[f"users/u{number % 5}", "producer_byte_rate", 1e6 + number], [f"users/{user}", "k", 1.0]]
        time_ms = T0_MS // 3_600_000 * 3_600_000 + minute * 60_000
        return request(
            number,
            time_ms,
            api_key=49,
            quota_type=None,
            user=user,
            altered_quotas=json.dumps(edits[: 1 + (number == 7)]),
        )

    write_table(tmp_path, "usage", usage(0))
    rows = [asked(number, number % 60, "admin") for number in range(138)]
    write_table(tmp_path, "requests", *rows, asked(0, 60, "admin"), asked(0, 3, "ops"))
    found = findings(Settings(cluster_id="demo", tables=str(tmp_path)), kinds=[Kind.QUOTA_EDIT])
    assert [(each.severity, each.subject, len(each.evidence)) for each in found] == [
        (Severity.WARNING, "user admin", 2),
        (Severity.INFO, "user admin", 137),
        (Severity.INFO, "user admin", 1),
        (Severity.INFO, "user ops", 1),
    ]
    assert found[0].sentence == "asked to change its own quota: users/admin k 1"
    assert found[1].sentence == (
        "asked 137 times on 2026-11-21 from 05:00 to 05:59 UTC to change 5 quotas: users/u0 producer_byte_rate "
        "1,000,115, users/u1 producer_byte_rate 1,000,116, users/u2 producer_byte_rate 1,000,117 and 2 more"
    )


def test_the_controllers_copy_is_not_told_again(tmp_path: Path) -> None:
    assert edits_of(tmp_path, ["users/bob", "producer_byte_rate", 1.0], is_forwarded=True) == []
