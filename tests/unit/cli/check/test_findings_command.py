"""`kquota findings` over small real tables: its forms, its evidence, and names that would harm a terminal."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.command_output import as_json, run, shown
from tests.support.tables.table_rows import DAY, T0_MS, decision, request, second, source, usage, write_table

HOSTILE = "\x1b[31mred\n=cmd()\u202eevil<script>"
_DAY_S = 86_400


def quotas(entity: str, level: int, **values: float) -> dict[str, Any]:
    return {
        "cluster_id": "demo", "entity": entity, "level": level, "valid_from": second(-30 * _DAY_S), "version": 7,
        "source": "zookeeper", **values,
    }  # fmt: skip


def write(
    root: Path, usages: list[dict[str, Any]], *rules: dict[str, Any], requests: list[dict[str, Any]]
) -> str:
    """The tables and a configuration that names them."""
    write_table(root, "usage", *usages)
    write_table(root, "requests", *requests)
    write_table(root, "quota_rules", source(9), *rules)
    config = root / "kquota.yaml"
    config.write_text(f"tables: {root}\ncluster_id: demo\n", encoding="utf-8")
    return str(config)


def clean(root: Path) -> str:
    """Two days of alice and bob, each under a quota of its own, throttled now and then and waiting it out."""
    usages = [
        usage(hour * 3_600, user=user, client_id=client_id, event_date=DAY)
        for hour in range(48)
        for user, client_id in (("alice", "etl"), ("bob", "app"))
    ]
    sent = [
        request(number, T0_MS + 2 * _DAY_S * 1_000 - 50_000 + number * 1_000, observed_throttle_ms=900)
        for number in range(40)
    ]
    rules = (
        quotas("users/alice", 3, producer_byte_rate=1e6),
        quotas("users/<default>", 6, producer_byte_rate=1e6),
    )
    return write(root, usages, *rules, requests=sent)


def test_a_clean_cluster_has_no_findings(tmp_path: Path) -> None:
    config = clean(tmp_path)
    assert shown("findings", "--config", config) == "no findings\n"
    assert as_json("findings", "--config", config)["rows"] == []


def shared(root: Path, client_id: str = "etl", users: tuple[str, ...] = ("alice", "bob")) -> str:
    usages = [usage(0, user=user, client_id=client_id, observed_throttle_ms=500) for user in users]
    write_table(root, "decisions", decision(0))
    return write(root, usages, quotas("clients/<default>", 8, producer_byte_rate=1e6), requests=[])


def test_a_finding_says_what_who_why_and_what_to_do(tmp_path: Path) -> None:
    config = shared(tmp_path)
    told = """\
warning  SHARED_BUCKET  client id etl
    2 users share one produce bucket of 1,000,000 B/s per broker (clients/<default>), total delay 1
    s: one of them can throttle the others -> give the users quotas of their own, or client ids
"""
    foot = "1 finding, most severe first\nagreement 100.00 % of 1 certain verdicts\n"
    assert shown("findings", "--config", config) == told + foot
    rows = """\
    | user=alice  client_id=etl  quota_type=produce  bytes=1000  delay_ms=500
    | user=bob  client_id=etl  quota_type=produce  bytes=1000  delay_ms=500
"""
    assert shown("findings", "--config", config, "--evidence") == told + rows + foot


def test_json_has_the_evidence_only_when_asked_for(tmp_path: Path) -> None:
    config = shared(tmp_path)
    answer = as_json("findings", "--config", config)
    assert (answer["command"], answer["agreement"]["requests_judged"]) == ("kquota findings", 1)
    assert list(answer["rows"][0]) == ["kind", "severity", "subject", "finding", "advice"]
    [row] = as_json("findings", "--config", config, "--evidence")["rows"]
    assert row["evidence"][1] == {
        "user": "bob", "client_id": "etl", "quota_type": "produce", "bytes": 1_000, "delay_ms": 500,
    }  # fmt: skip


def test_kinds_and_times_choose(tmp_path: Path) -> None:
    config = shared(tmp_path)
    assert as_json("findings", "--config", config, "--kind", "UNMETERED")["rows"] == []
    both = ("--kind", "UNMETERED", "--kind", "SHARED_BUCKET")
    assert len(as_json("findings", "--config", config, *both)["rows"]) == 1
    assert as_json("findings", "--config", config, "--since", "2026-11-21T05:40:01Z")["rows"] == []
    with pytest.raises(SystemExit):
        run("findings", "--config", config, "--kind", "NOTHING")


def test_hostile_names_do_no_harm_in_any_form(tmp_path: Path) -> None:
    config = shared(tmp_path, HOSTILE, ("alice", "=cmd()\x1b[2J"))
    out = shown("findings", "--config", config, "--evidence")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "client id \\x1b[31mred\\x0a=cmd()\\u202eevil<script>\n" in out
    assert "user==cmd()\\x1b[2J" in out
    code, text, _ = run("findings", "--config", config, "--evidence", "--output", "csv")
    assert code == 0
    [_, row] = csv.reader(io.StringIO(text))
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)
    assert json.loads(row[5])[0]["client_id"] == HOSTILE
    [found] = as_json("findings", "--config", config, "--evidence")["rows"]
    assert {one["client_id"] for one in found["evidence"]} == {HOSTILE}


def test_hostile_names_in_every_kind_of_sentence_are_escaped(tmp_path: Path) -> None:
    name = "\x1b[2J\nuser"
    times = range(30)
    sent = [
        request(
            n, T0_MS + n * 100, user=name, client_id=f"{name}{n % 2}", observed_throttle_ms=2_000,
            connection=f"h:1-\x1b[2J:{n}-{n}", software_name=name, software_version=name, api_version=5,
            topics=[], quota_type="fetch" if n % 2 else "produce", point_kind=2 * (n % 2), api_key=n % 2,
        )
        for n in times
    ] + [
        request(99, T0_MS, user=name, api_key=49, quota_type=None, altered_quotas=json.dumps([[name, name, 1.0]]))
    ]  # fmt: skip
    usages = [usage(n, user=name, client_id=f"{name}-{n}") for n in times]
    usages += [usage(100, user=name, client_id=""), usage(101, user=name, client_id=name)]
    config = write(
        tmp_path, usages, quotas("users/%1B%5B2J", 3, producer_byte_rate=1.0),
        quotas("clients/%1B%5B2J%0Auser", 7, producer_byte_rate=1.0), requests=sent,
    )  # fmt: skip
    out = shown("findings", "--config", config, "--evidence")
    kinds = {row["kind"] for row in as_json("findings", "--config", config)["rows"]}
    assert {"IGNORES_THROTTLE", "UNMETERED", "UNSTABLE_CLIENT_ID", "QUOTA_EDIT"} <= kinds
    assert "\x1b" not in out
    assert all(line.startswith((" ", "high", "warning", "info")) or "most severe first" in line
               for line in out.splitlines())  # fmt: skip


def test_a_table_that_is_missing_is_said(tmp_path: Path) -> None:
    code, _, err = run("findings", "--tables", str(tmp_path))
    assert code == 1
    assert err.startswith(f"kquota: table usage is missing under {tmp_path}: run the audit first")
