"""`kquota tree` over small real tables: hits of each node, what limits nobody, and names that would harm a terminal."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from tests.support.programs.command_output import as_json, run, shown
from tests.support.tables.table_rows import decision, rule, second, source, usage, write_table

_DAY_S = 86_400
HOSTILE = "\x1b[31mred\n=cmd()\u202e<b>"


def governed(rule: str | None, offset_s: int = 0, **changed: Any) -> dict[str, Any]:
    return decision(offset_s, rule=rule, **changed)


def clean(root: Path) -> str:
    """Two seconds of alice under a rule of hers, one of her client etl, one of bob under the default."""
    write_table(
        root,
        "quota_rules",
        source(9),
        rule("users/alice", 3, producer_byte_rate=1e6, consumer_byte_rate=2e6),
        rule("users/alice/clients/etl", 1, producer_byte_rate=3e5),
        rule("users/<default>", 6, producer_byte_rate=5e5),
        rule("ips/<default>", None, connection_creation_rate=20.0),
        # Of the past: in force no more.
        rule("users/gone", 3, producer_byte_rate=1.0) | {"valid_to": second(-1)},
    )
    write_table(
        root,
        "decisions",
        # 3 requests and one that came late; 2 of the 2 seconds with throttles of 40 ms in all.
        governed("users/alice", 0, requests=2, late=1, throttled_requests=1, total_throttle_ms=10),
        governed("users/alice", 1, throttled_requests=2, total_throttle_ms=30, amount=500),
        governed("users/alice/clients/etl", 0, requests=5, amount=7_000_000),
        governed("users/<default>", 1, requests=2, amount=2_000),
        governed("users/alice", 1, quota_type="fetch", requests=9, amount=9_000),
        governed(None, 1, requests=6, amount=600),
    )
    write_table(root, "usage", usage(0), usage(1, client_id="adhoc"), usage(1, user="bob", client_id="app"))
    return str(root)


CLEAN = """\
rule              type           limit  requests    used  total delay  time throttled  marks
users
├─ alice          fetch       2.0 MB/s         9  9.0 kB            -               -
│  │              produce     1.0 MB/s         4  1.5 kB        40 ms             2 s
│  └─ client etl  produce     300 kB/s         5  7.0 MB            -               -
└─ <default>      produce     500 kB/s         2  2.0 kB            -               -  default
ips
└─ <default>      connection      20/s         0       0            -               -  default
(no rule)         produce                      6   600 B            -               -  no limit
by table quota_rules under TABLES; from 2026-11-19
05:40:01 UTC to 2026-11-21 05:40:02 UTC
total delay: by brokers; time throttled: while a bucket of the rule was throttled
"""


def test_every_node_shows_its_values_and_what_it_governed(tmp_path: Path) -> None:
    """Without a mark that needs it there is no legend."""
    root = clean(tmp_path)
    # The last two days up to the newest second, T0 + 1.
    assert " ".join(shown("tree", "--tables", root).split()) == " ".join(
        CLEAN.replace("TABLES", root).split()
    )
    assert shown("tree", "--tables", root).startswith(CLEAN.partition("by table")[0])


def test_time_throttled_is_clock_time_and_ends_with_the_throttle(tmp_path: Path) -> None:
    write_table(tmp_path, "quota_rules", source(9), rule("users/<default>", 6, producer_byte_rate=5e5))
    throttled = {"observed_throttled_requests": 1, "throttled_requests": 1, "rule": "users/<default>"}
    write_table(
        tmp_path,
        "decisions",
        # 2.5 s from second 0 on are 3 s of the clock. Another bucket is throttled within them.
        decision(0, observed_throttle_ms=2_500, observed_total_throttle_ms=2_500, **throttled),
        decision(1, bucket_user="bob", observed_throttle_ms=80, observed_total_throttle_ms=90, **throttled),
        # 4 s at second 9, the newest one: only 1 s of it is in the period.
        decision(9, broker_id=2, observed_throttle_ms=4_000, observed_total_throttle_ms=4_000, **throttled),
    )
    [line] = [line for line in shown("tree", "--tables", str(tmp_path)).splitlines() if "<default>" in line]
    # 2,500 + 90 + 4,000 ms = 6.59 s; 3 + 1 s.
    assert " ".join(line.split()) == "└─ <default> produce 500 kB/s 3 3.0 kB 6.59 s 4 s default"


def test_json_has_a_row_a_key_with_raw_numbers(tmp_path: Path) -> None:
    answer = as_json("tree", "--tables", clean(tmp_path))
    [row] = [r for r in answer["rows"] if r["entity"] == "users/alice" and r["quota_type"] == "produce"]
    # 2 + 1 late + 1 requests; 1,000 + 500 bytes; two seconds; 10 + 30 ms.
    assert {name: row[name] for name in ("limit", "requests", "amount", "bucket_seconds")} == {
        "limit": 1_000_000.0, "requests": 4, "amount": 1_500, "bucket_seconds": 2,
    }  # fmt: skip
    assert (row["time_throttled_s"], row["delay_ms"], row["level"]) == (2, 40, 3)
    assert [r["rule"] for r in answer["without_rule"]] == [None]
    assert {r["entity"] for r in answer["rows"]} == {
        "users/alice", "users/alice/clients/etl", "users/<default>", "ips/<default>",
    }  # fmt: skip


def test_since_counts_from_then_on(tmp_path: Path) -> None:
    rows = as_json("tree", "--tables", clean(tmp_path), "--since", "2026-11-21T05:40:01Z")["rows"]
    assert {(r["entity"], r["quota_type"]): r["requests"] for r in rows if r["requests"]} == {
        ("users/alice", "produce"): 1, ("users/alice", "fetch"): 9, ("users/<default>", "produce"): 2,
    }  # fmt: skip


def test_what_limits_nobody_is_marked(tmp_path: Path) -> None:
    write_table(
        tmp_path,
        "quota_rules",
        source(9),
        rule("users/alice", 3, producer_byte_rate=1e6),
        rule("users/alice/clients/<default>", 2, producer_byte_rate=2e6),
        rule("users/carol", 3, producer_byte_rate=1e6),
        rule("users/young", 3, since_s=80_000, producer_byte_rate=1e6),
    )
    # A day and a second of alice with a client id: her pair decides for all of them.
    write_table(tmp_path, "usage", usage(0), usage(_DAY_S))
    write_table(
        tmp_path,
        "decisions",
        governed("users/alice/clients/<default>", 0),
        governed("users/alice/clients/<default>", _DAY_S),
        governed("users/gone", 5),
        governed("my.Callback:tenant a", 5),
    )
    answer = as_json("tree", "--tables", str(tmp_path))
    assert {row["entity"]: (row["marks"], row["shadowed_by"]) for row in answer["rows"]} == {
        "users/alice": (["shadowed"], ["users/alice/clients/<default>"]),
        "users/alice/clients/<default>": (["default"], []),
        "users/carol": (["dead"], []),
        "users/young": (["no hit"], []),
        "users/gone": (["removed"], []),
    }
    assert [row["rule"] for row in answer["without_rule"]] == ["my.Callback:tenant a"]
    # Only the marks that are shown: "default" needs no legend.
    words = " ".join(shown("tree", "--tables", str(tmp_path)).split())
    assert words.endswith(
        "dead: in a day or more of usage, nobody that it names was seen; shadowed: in a day or more of usage, other "
        "rules came before it; no hit: it governed nothing; removed: it governed, and is no longer set"
    )


def test_a_thousand_siblings_do_not_flood_the_screen(tmp_path: Path) -> None:
    rules = [rule(f"users/u{n:04}", 3, producer_byte_rate=1e6) for n in range(1_000)]
    write_table(tmp_path, "quota_rules", source(9), *rules)
    hits = [governed(f"users/u{n:04}", n % 60, requests=n) for n in range(500, 520)]
    write_table(tmp_path, "decisions", *hits)
    write_table(tmp_path, "usage", usage(0))
    out = shown("tree", "--tables", str(tmp_path), "--limit", "12").splitlines()
    below = out[out.index("users") + 1 :]
    assert [line.split()[1] for line in below[:13]] == [*(f"u{n:04}" for n in range(519, 507, -1)), "..."]
    assert below[12] == "└─ ... and 988 more: --limit 0"
    assert len(as_json("tree", "--tables", str(tmp_path))["rows"]) == 1_000


def test_the_limit_counts_rules_and_not_their_keys(tmp_path: Path) -> None:
    rules = [rule(f"users/u{n}", 3, producer_byte_rate=1e6, consumer_byte_rate=2e6) for n in range(3)]
    write_table(tmp_path, "quota_rules", source(9), *rules)
    write_table(tmp_path, "decisions")
    rows = as_json("tree", "--tables", str(tmp_path), "--limit", "1")["rows"]
    assert [(row["entity"], row["quota_type"]) for row in rows] == [
        ("users/u0", "fetch"),
        ("users/u0", "produce"),
    ]


def test_hostile_names_do_no_harm(tmp_path: Path) -> None:
    name = "%1B%5B31mred%0A%3Dcmd%28%29%E2%80%AE%3Cb%3E"
    write_table(
        tmp_path, "quota_rules", source(9), rule(f"users/{name}/clients/{name}", 1, producer_byte_rate=1e6)
    )
    write_table(tmp_path, "decisions", governed(f"users/{name}", rule_version=1))
    write_table(tmp_path, "usage", usage(0, user=HOSTILE, client_id="=cmd()"))
    out = shown("tree", "--tables", str(tmp_path))
    assert "\x1b" not in out and "\u202e" not in out
    of_user = out.splitlines()[3]
    assert "├─" not in of_user, "one user"
    assert "\\x1b[31mred\\x0a=cmd()\\u202e<b>" in of_user
    [row, _] = as_json("tree", "--tables", str(tmp_path))["rows"]
    assert row["user"] == HOSTILE
    _, text, _ = run("tree", "--tables", str(tmp_path), "--output", "csv")
    assert not any(
        cell.startswith(("=", "+", "-", "@")) for line in csv.reader(io.StringIO(text)) for cell in line
    )


def test_tables_without_decisions_show_the_quotas_alone(tmp_path: Path) -> None:
    write_table(tmp_path, "quota_rules", source(9), rule("clients/app", 7, request_percentage=25.0))
    write_table(tmp_path, "decisions")
    out = shown("tree", "--tables", str(tmp_path))
    assert out.startswith("rule     type     limit  marks\nclients\n└─ app   request   25 %\n")
    assert "the tables hold no decisions" in out
    [row] = as_json("tree", "--tables", str(tmp_path))["rows"]
    assert (row["requests"], row["marks"]) == (None, [])


def test_no_rules_is_one_line(tmp_path: Path) -> None:
    write_table(tmp_path, "quota_rules", source(9))
    write_table(tmp_path, "decisions")
    assert shown("tree", "--tables", str(tmp_path)).startswith(
        "no quotas are set, by table quota_rules under"
    )
    code, _, err = run("tree", "--tables", str(tmp_path / "nowhere"))
    assert (code, err.startswith("kquota: tables path")) == (1, True)


def test_the_quotas_of_a_file_with_what_the_tables_know(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(
        "- {user: alice, type: producer_byte_rate, value: 7}\n"
        "- {ip: '::1', type: connection_creation_rate, value: 9}\n",
        encoding="utf-8",
    )
    answer = as_json("tree", str(path), "--tables", clean(tmp_path / "t"))
    assert answer["source"] == f"file {path}"
    rows = {(row["entity"], row["key"]): row for row in answer["rows"]}
    alice, ip = rows["users/alice", "producer_byte_rate"], rows["ips/::1", "connection_creation_rate"]
    assert (alice["limit"], alice["requests"], alice["marks"], ip["limit"]) == (7.0, 4, [], 9.0)
    # It governed by the tables, and is not in the file.
    assert rows["users/<default>", "producer_byte_rate"]["marks"] == ["default", "removed"]
    alone = as_json("tree", str(path), "--tables", str(tmp_path / "none"))
    assert {row["entity"]: row["requests"] for row in alone["rows"]} == {"users/alice": None, "ips/::1": None}


def test_rules_that_only_jmx_tells_of_have_hits_without_numbers(tmp_path: Path) -> None:
    jmx = dict.fromkeys(("requests", "amount", "late", "throttled_requests", "total_throttle_ms"))
    write_table(tmp_path, "quota_rules", source(9), rule("ips/<default>", None, connection_creation_rate=20.0),
                rule("ips/10.0.0.1", None, connection_creation_rate=9.0))  # fmt: skip
    write_table(
        tmp_path, "decisions",
        *(governed("ips/<default>", n, quota_type="connection", source="jmx", observed_throttle_ms=n, **jmx)
          for n in range(3)),
    )  # fmt: skip
    out = shown("tree", "--tables", str(tmp_path))
    # Samples at 1 and 2 s had a throttle; the other rule was looked at and governed nothing.
    lines = [line.split() for line in out.splitlines()[2:4]]
    assert lines[0] == ["├─", "<default>", "connection", "20/s", "-", "-", "-", "2", "s", "default"]
    assert lines[1] == ["└─", "10.0.0.1", "connection", "9/s", "0", "0", "-", "-", "no", "hit"]
