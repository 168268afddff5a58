"""Bad inputs of `evidence`, `review` and `whatif`: one line with what, where and what to do, and an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from kquota_spark.model.quotas.entities import Entity
from tests.support.reports.gathered_report import rule
from tests.support.tables.table_rows import T0_MS, decision, request, usage, write_table

TIME = "expected a length of time (30s, 10m, 2h, 1d) or a time such as 2026-11-21T05:40:00Z, 1970 to 9999"
NO_TABLES = "does not exist: run the audit first, or name its settings: --config FILE"
CONTEXTS = "not in contexts.yaml, which has none: add it by kquota context add"
ALICE = ("--add", "user=alice,producer_byte_rate=10")
FORMATS = "declared, kfk, rpk, kafka-configs, kafka-configs-commands, strimzi, terraform"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of five seconds of alice, and files of each bad kind beside them."""
    root = tmp_path_factory.mktemp("bad")
    write_table(root / "tables", "decisions", *(decision(at_s) for at_s in range(5)))
    write_table(root / "tables", "usage", *(usage(at_s, points=[]) for at_s in range(5)))
    write_table(root / "tables", "requests", *(request(at_s, T0_MS + 1_000 * at_s) for at_s in range(5)))
    write_table(root / "tables", "quota_rules", rule(Entity("alice"), producer_byte_rate=100.0))
    (root / "folder").mkdir()
    (root / "empty").write_text("\n", encoding="utf-8")
    (root / "text").write_text("hello\n", encoding="utf-8")
    (root / "bytes").write_bytes(b"\xff\xfe\x00")
    (root / "none.yaml").write_text("[]\n", encoding="utf-8")
    (root / "wrong.yaml").write_text(
        "- {user: alice, type: producer_byte_rate, value: lots}\n", encoding="utf-8"
    )
    (root / "good.yaml").write_text(
        "- {user: alice, type: producer_byte_rate, value: 50}\n", encoding="utf-8"
    )
    return root


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in the folder, so that messages have no path of this machine."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KQUOTA_CONTEXTS", "contexts.yaml")


def code_of(*words: str) -> int:
    try:
        return main([*words])
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        return ended.code


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--verify", "gone"), "gone: cannot be read: No such file or directory"),
        (("--verify", "folder"), "folder: cannot be read: Is a directory"),
        (("--verify", "text/x"), "text/x: cannot be read: Not a directory"),
        (("--verify", "empty"), "empty: the file is no ZIP archive, or is damaged"),
        (("--verify", "text"), "text: the file is no ZIP archive, or is damaged"),
        (("--verify", "\x1b[2Jx"), "\\x1b[2Jx: cannot be read: No such file or directory"),
        (("--verify", "text", "--user", "a"), "--verify: not with --user, a bundle is about one decision"),
        (("--tables", "gone"), f"tables path gone {NO_TABLES}"),
        (("--tables", "text"), "tables path text is no folder: name the root of the tables"),
        (
            ("--tables", "tables", "--user", "no\x1b[2Jbody"),
            (
                "no throttled second matches --user no\\x1b[2Jbody in the day before 2026-11-21 05:40:04 UTC: --at "
                "chooses another second"
            ),
        ),
        (
            ("--tables", "tables", "--user", ""),
            (
                "no throttled second matches --user '' in the day before 2026-11-21 05:40:04 UTC: --at chooses another "
                "second"
            ),
        ),
        (
            ("--tables", "tables", "--at", "2030-01-01"),
            (
                "no decision is there at 2030-01-01 00:00:00 UTC: kquota decisions lists the seconds of a client, the "
                "newest is of 2026-11-21 05:40:04 UTC"
            ),
        ),
    ],
)
def test_evidence_names_the_bad_input(
    words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of("evidence", *words) == 1
    assert capsys.readouterr() == ("", f"kquota: {line}\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--quotas", "gone"), "gone: cannot be read: No such file or directory"),
        (("--quotas", "folder"), "folder: cannot be read: Is a directory"),
        (("--quotas", "empty"), "empty: no quotas in it, and [] would mean that there are none"),
        (("--quotas", "bytes"), "bytes: not YAML in UTF-8"),
        (("--quotas", "text"), "text: not a list, expected a list of quotas such as - {user: alice, ...}"),
        (
            ("--quotas", "wrong.yaml"),
            "wrong.yaml: [0].value: 'lots', expected a whole number of bytes per second, 0 or more",
        ),
        (("--quotas", "\x1b[2Jx"), "\\x1b[2Jx: cannot be read: No such file or directory"),
        (
            ("--add", "user=alice,user=bob,producer_byte_rate=1"),
            (
                "--add user=alice,user=bob,producer_byte_rate=1: user twice, expected e.g. "
                "user=bob,producer_byte_rate=250000"
            ),
        ),
        (
            ("--add", "user=alice,producer_byte_rate=1,producer_byte_rate=2"),
            (
                "--add user=alice,producer_byte_rate=1,producer_byte_rate=2: producer_byte_rate twice, expected e.g. "
                "user=bob,producer_byte_rate=250000"
            ),
        ),
        (
            (*ALICE, "--since", "2030-01-01"),
            "--since 2030-01-01 00:00:00 UTC: not before the end, 2026-11-21 05:40:05 UTC",
        ),
        ((*ALICE, "--tables", "gone"), f"tables path gone {NO_TABLES}"),
    ],
)
def test_whatif_names_the_bad_input(
    words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = () if "--tables" in words else ("--tables", "tables")
    assert code_of("whatif", *place, *words) == 1
    assert capsys.readouterr() == ("", f"kquota: {line}\n")


@pytest.mark.parametrize(
    ("base", "line"),
    [
        ("gone", f"gone: no such file, and context gone: {CONTEXTS}"),
        ("folder", f"folder: a folder, expected a file of quotas, and context folder: {CONTEXTS}"),
        ("", "'': expected a file of quotas, - for standard input, or a saved context"),
        ("empty", "empty: no quotas in it, and [] would mean that there are none"),
        ("bytes", "bytes: not UTF-8 at byte 0, expected a text"),
        ("text", f"text: is none of the formats {FORMATS}"),
        (
            "wrong.yaml",
            "wrong.yaml: [0].value: 'lots', expected a whole number of bytes per second, 0 or more",
        ),
        ("\x1b[2Jx", f"\\x1b[2Jx: no such file, and context \\x1b[2Jx: {CONTEXTS}"),
    ],
)
def test_review_names_the_bad_input(base: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("review", "--tables", "tables", "--base", base, "--head", "good.yaml") == 1
    assert capsys.readouterr() == ("", f"kquota: {line}\n")


def test_review_refuses_tables_that_are_named_and_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    # Without recorded traffic the comment would look like one of a change that nobody notices.
    assert code_of("review", "--tables", "gone", "--base", "none.yaml", "--head", "good.yaml") == 1
    assert capsys.readouterr() == ("", f"kquota: tables path gone {NO_TABLES}\n")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("evidence", "--at", "yesterday"), 2),
        (("whatif", *ALICE, "--since", "yesterday"), 2),
        (("whatif", *ALICE, "--until", "yesterday"), 2),
        # 2 means a person there.
        (("review", "--base", "good.yaml", "--head", "good.yaml", "--since", "yesterday"), 1),
    ],
)
def test_a_date_that_is_none_is_one_line(
    words: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(*words) == code
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"kquota {words[0]}: argument {words[-2]}: 'yesterday', {TIME}"
    assert second == f"kquota {words[0]} --help shows the usage"
