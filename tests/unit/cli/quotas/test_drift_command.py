"""`kquota drift`: what is not as declared, since when, and who edited it, joined from three tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Quotas
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.model.compare.drift import Drift, Editor, drifts, with_editors
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange
from tests.support.clock import set_clock
from tests.support.programs.command_output import run
from tests.support.tables.table_rows import DAY, T0_MS, request, rule, second, source, write_table

KNOWN_S = 500
"""Through so many seconds after T0 the tables know the quotas."""
ALICE, KEY = Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE


def look_at(monkeypatch: pytest.MonkeyPatch, at_s: int) -> None:
    set_clock(monkeypatch, lambda: T0_MS + at_s * 1_000)


@pytest.fixture(autouse=True)
def a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are followed: the clock is ten seconds ahead of what they know."""
    look_at(monkeypatch, KNOWN_S + 10)


def change(
    at_ms: int, value: float | None, previous: float | None, before_ms: int | None = None
) -> QuotaChange:
    return QuotaChange(ALICE, KEY, value, previous, at_ms, at_ms, before_ms)


def only(declared: float | None, now: float | None, *changes: QuotaChange) -> Drift:
    [found] = drifts([QuotaEdit(ALICE, KEY, declared, now)], changes)
    return found


HISTORY = (change(100, 5.0, None), change(200, 7.0, 5.0), change(300, 8.0, 7.0))


@pytest.mark.parametrize(
    ("declared", "now", "since_ms", "last_ms"),
    [
        (7.0, 8.0, 300, 300),
        (5.0, 8.0, 200, 300),  # it left what was declared at 200, and was edited again
        (None, 8.0, 100, 300),  # nothing was set before the first edit
        (6.0, 8.0, None, 300),  # it never was 6
        (5.0, 9.0, None, None),  # the last edit is not one that the watch saw
    ],
)
def test_since_when(declared: float | None, now: float, since_ms: int | None, last_ms: int | None) -> None:
    found = only(declared, now, *HISTORY)
    assert (found.since and found.since.changed_at_ms, found.last and found.last.changed_at_ms) == (
        since_ms,
        last_ms,
    )


def test_a_value_that_came_back_drifted_at_the_last_departure() -> None:
    changes = (change(100, 5.0, None), change(200, 7.0, 5.0), change(300, 5.0, 7.0), change(400, 8.0, 5.0))
    found = only(5.0, 8.0, *changes)
    assert found.since is not None and found.since.changed_at_ms == 400


@pytest.mark.parametrize(
    ("editor", "is_it"),
    [
        (Editor(ALICE, KEY, 8.0, 5_300, "admin", "cli"), True),
        (Editor(ALICE, KEY, 8.0, 299, "admin", "cli"), False),  # more than 5 s before the edit at 5,300
        (Editor(ALICE, KEY, 8.0, 300, "admin", "cli"), True),
        (Editor(ALICE, KEY, 8.0, 10_301, "admin", "cli"), False),  # more than 5 s after it
        (Editor(ALICE, KEY, 9.0, 5_300, "admin", "cli"), False),  # another value
        (Editor(Entity("bob"), KEY, 8.0, 5_300, "admin", "cli"), False),
        (Editor(ALICE, KEY, 8.0, 5_300 - 600_000, "root", policy="raise"), True),
        (Editor(ALICE, KEY, 8.0, 5_300 - 600_001, "root", policy="raise"), False),
    ],
)
def test_who(editor: Editor, is_it: bool) -> None:
    [found] = with_editors([only(7.0, 8.0, change(5_300, 8.0, 7.0))], [editor])
    assert found.editor == (editor if is_it else None)


def test_the_log_of_the_enforcement_says_more_than_its_own_request() -> None:
    plan = Editor(ALICE, KEY, 8.0, 100, "root", policy="raise")
    asked = Editor(ALICE, KEY, 8.0, 300, "kquota", "kquota")
    [found] = with_editors([only(7.0, 8.0, change(300, 8.0, 7.0))], [plan, asked])
    assert found.editor == plan


def test_a_polled_edit_came_between_two_polls() -> None:
    polled = only(7.0, 8.0, change(1_000_000, 8.0, 7.0, before_ms=1_060_000))
    [found] = with_editors([polled], [Editor(ALICE, KEY, 8.0, 1_059_000, "admin", "cli")])
    assert found.editor is not None and found.editor.name == "admin"


def edited(entity: str, offset_s: int, value: float | None, previous: float | None) -> dict[str, Any]:
    return {
        "cluster_id": "demo", "entity": entity, "key": KEY.value, "value": value, "previous_value": previous,
        "changed_at": second(offset_s), "version": offset_s + 10_000, "source": "zookeeper",
        "observed_at": second(offset_s),
    }  # fmt: skip


def tables(root: Path) -> str:
    """alice was raised by a request of admin's, bob by the enforcement, carol by nobody who is known."""
    write_table(
        root, "quota_rules", source(KNOWN_S), rule("users/alice", 3, producer_byte_rate=2e6),
        rule("users/bob", 3, producer_byte_rate=3e6), rule("users/carol", 3, producer_byte_rate=4e6),
        rule("users/dora", 3, producer_byte_rate=5e6),
    )  # fmt: skip
    write_table(
        root, "quota_changes", *(edited(f"users/{name}", -9_000, 1e6, None) for name in ("alice", "bob", "carol")),
        edited("users/alice", 60, 2e6, 1e6), edited("users/bob", 120, 3e6, 1e6), edited("users/carol", 180, 4e6, 1e6),
    )  # fmt: skip
    asked = json.dumps(
        [["users/alice", KEY.value, 2e6], ["group=x", KEY.value, 1.0], ["users/alice", "other", 1.0]]
    )
    write_table(
        root, "requests",
        request(0, T0_MS + 59_500, api_key=49, quota_type=None, user="admin", client_id="cli", altered_quotas=asked),
        request(1, T0_MS + 30_000, api_key=49, quota_type=None, user="eve", client_id="cli", altered_quotas=asked),
    )  # fmt: skip
    write_table(
        root, "enforcement_log",
        {"cluster_id": "demo", "event_date": DAY, "plan_id": "p", "step": 1, "sequence": 1, "event": "applied",
         "at": second(118), "entity": "users/bob", "level": 3, "key": KEY.value, "value_before": 1e6,
         "value_after": 3e6, "policy": "raise-throttled", "actor": "enforcer", "reason": "r"},
    )  # fmt: skip
    return str(root)


def declared(tmp_path: Path, **limits: int) -> str:
    path = tmp_path / "quotas.yaml"
    lines = [f"- {{user: {user}, type: producer_byte_rate, value: {n}}}\n" for user, n in limits.items()]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


ALL = {"alice": 1_000_000, "bob": 1_000_000, "carol": 1_000_000, "dora": 5_000_000}


def test_drift_says_since_when_and_who(tmp_path: Path) -> None:
    code, out, err = run("drift", declared(tmp_path, **ALL), "--tables", tables(tmp_path / "t"))
    assert (code, err) == (2, "")
    assert out.startswith("""\
entity       type      declared        now           since  by
users/alice  produce  1,000,000  2,000,000  11-21 05:41:00  admin, client cli
users/bob    produce  1,000,000  3,000,000  11-21 05:42:00  enforcer, policy raise-throttled
users/carol  produce  1,000,000  4,000,000  11-21 05:43:00  -
edits after 2026-11-21T05:48:20Z are not known
3 values not as declared: """)


def test_an_edit_after_the_drift_began_has_a_time_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_table(root, "quota_rules", source(KNOWN_S), rule("users/alice", 3, producer_byte_rate=3.0))
    write_table(
        root, "quota_changes", edited("users/alice", 0, 1.0, None), edited("users/alice", 60, 2.0, 1.0),
        edited("users/alice", 120, 3.0, 2.0),
    )  # fmt: skip
    _, out, _ = run("drift", declared(tmp_path, alice=1), "--tables", str(root))
    assert "users/alice  produce         1    3  11-21 05:41:00  11-21 05:42:00  -\n" in out


def test_json(tmp_path: Path) -> None:
    root = tables(tmp_path / "t")
    code, out, _ = run("drift", declared(tmp_path, **ALL), "--tables", root, "--output", "json")
    answer = json.loads(out)
    assert (code, answer["has_history"], answer["known_through"]) == (2, True, "2026-11-21T05:48:20Z")
    assert answer["rows"][1] == {
        "entity": "users/bob", "key": "producer_byte_rate", "declared": 1e6, "now": 3e6,
        "since": "2026-11-21T05:42:00Z", "since_before": None, "edited_at": "2026-11-21T05:42:00Z",
        "edited_before": None, "version": 10_120, "by": "enforcer", "client_id": None, "policy": "raise-throttled",
    }  # fmt: skip


def test_as_declared_is_0_and_quiet_prints_nothing(tmp_path: Path) -> None:
    root = tables(tmp_path / "t")
    same = {"alice": 2_000_000, "bob": 3_000_000, "carol": 4_000_000, "dora": 5_000_000}
    code, out, _ = run("drift", declared(tmp_path, **same), "--tables", root)
    [known, told, *_] = out.splitlines()
    assert (code, known) == (0, "edits after 2026-11-21T05:48:20Z are not known")
    assert told.startswith("no drift: table quota_rules under")
    assert run("drift", declared(tmp_path, **same), "--tables", root, "--quiet") == (0, "", "")
    assert run("drift", declared(tmp_path, **ALL), "--tables", root, "--quiet") == (2, "", "")
    code, out, err = run("drift", "nowhere", "--tables", root, "--quiet")
    assert (code, out) == (1, "") and err.startswith("kquota: nowhere: no such file")


def test_the_past_is_judged_by_what_was_known_then(tmp_path: Path) -> None:
    root = tables(tmp_path / "t")
    code, out, _ = run(
        "drift",
        declared(tmp_path, alice=9),
        "--tables",
        root,
        "--at",
        "2026-11-21T05:41:30Z",
        "--output",
        "json",
    )
    assert code == 2
    by = {row["entity"]: row["edited_at"] for row in json.loads(out)["rows"]}
    # The rules of this table hold for all time; of the edits only alice's was made by then.
    assert (by["users/alice"], by["users/bob"]) == ("2026-11-21T05:41:00Z", None)


def test_without_history_it_is_said(tmp_path: Path) -> None:
    write_table(
        tmp_path / "t", "quota_rules", source(KNOWN_S), rule("users/alice", 3, producer_byte_rate=1.0)
    )
    code, out, _ = run("drift", declared(tmp_path, alice=2), "--tables", str(tmp_path / "t"))
    assert code == 2 and "since when, and who: not recorded" in out


SAME = {"alice": 2_000_000, "bob": 3_000_000, "carol": 4_000_000, "dora": 5_000_000}


@pytest.mark.parametrize(
    ("at_s", "is_stale"),
    [(KNOWN_S + 40, False), (KNOWN_S + 41, True)],  # ten times quotas.known_through_interval (1 s), and 30 s
)
def test_tables_that_nobody_feeds_are_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_s: int, is_stale: bool
) -> None:
    root = tables(tmp_path / "t")
    look_at(monkeypatch, at_s)
    for limits, code in ((SAME, 0), (ALL, 2)):
        asked = ("drift", declared(tmp_path, **limits), "--tables", root)
        found, out, err = run(*asked, "--quiet")
        assert (found, out) == (1 if is_stale else code, "")
        assert err == is_stale * (
            f"kquota: the quotas of now are not known: table quota_rules under {root} has them only through "
            "2026-11-21T05:48:20Z: keep kquota watch or the audit running, or name a running cluster, or an earlier "
            "--at\n"
        )
        # A person sees the answer all the same.
        assert ("no drift: " if code == 0 else "3 values not as declared: ") in run(*asked)[1]


def test_the_past_that_was_known_does_not_grow_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tables(tmp_path / "t")
    look_at(monkeypatch, 9_999_999)
    asked = ("drift", declared(tmp_path, **SAME), "--tables", root, "--quiet", "--at")
    assert run(*asked, "2026-11-21T05:48:20Z") == (0, "", "")
    code, out, err = run(*asked, "2026-11-21T05:50:00Z")  # 100 s after what is known
    assert (code, out) == (1, "")
    assert err.startswith(
        "kquota: the quotas of 2026-11-21T05:50:00Z are not known: table quota_rules under "
    )


def test_a_moment_that_was_given_as_so_long_ago_is_told_as_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, lambda: T0_MS + 600_000)
    root = tables(tmp_path / "t")
    _, _, err = run("drift", declared(tmp_path, **SAME), "--tables", root, "--quiet", "--at", "30s")
    at = iso_time(T0_MS + 570_000)
    assert err.startswith(f"kquota: the quotas of {at} are not known: table quota_rules under ")


def test_a_table_without_a_source_is_no_answer(tmp_path: Path) -> None:
    write_table(tmp_path / "t", "quota_rules", rule("users/alice", 3, producer_byte_rate=1.0))
    code, _, err = run("drift", declared(tmp_path, alice=1), "--tables", str(tmp_path / "t"), "--quiet")
    assert code == 1 and "has them through no time at all" in err


def test_polled_quotas_are_stale_after_ten_polls() -> None:
    polled = Quotas(source="admin", poll_interval=Duration(60_000))
    assert (polled.stale_after_ms, Quotas().stale_after_ms) == (630_000, 40_000)


@pytest.mark.parametrize(
    "words",
    [["drift", "f", "--quite"], ["drift"], ["diff", "a", "b", "--by", "x"], ["doctor", "--limit", "1"]],
)
def test_where_2_is_an_answer_wrong_usage_is_1(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1
    error, where_help_is = capsys.readouterr().err.splitlines()
    assert error.startswith(f"kquota {words[0]}: ")
    assert where_help_is == f"kquota {words[0]} --help shows the usage"
