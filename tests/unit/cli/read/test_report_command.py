"""Claims about `kquota report`: which file it writes, what it prints, and what a schedule finds in its folder."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from kquota_spark.cli.read.report import report_format
from kquota_spark.errors import UserError
from kquota_spark.process.replaced_file import replace_file
from kquota_spark.reports.pages.page_names import period_name, safe_name
from kquota_spark.reports.scope.period import Period
from tests.support.places import ROOT
from tests.support.programs.command_output import run
from tests.support.tables.report_tables import EMOJI, FROM_MS, HOSTILE, TO_MS, write_report_tables

SENTENCE = re.compile(r"\d+ of \d+ buckets were throttled: .* of delay in all\. near a limit: .*\n")
DAY_MS = 86_400_000
ENDINGS = ".html, .htm, .md, .csv, .csv.zip or .json"


def iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


PERIOD = f"{iso(FROM_MS)}..{iso(TO_MS)}"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    write_report_tables(root)
    (root / "kquota.yaml").write_text(f"cluster_id: demo\ntables: {root}\n", encoding="utf-8")
    return root


def report(tables: Path, *arguments: str) -> tuple[int, str, str]:
    return run("report", "--config", str(tables / "kquota.yaml"), "--period", PERIOD, *arguments)


def test_the_page_is_named_after_cluster_and_period_and_told_in_a_line(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = report(tables)
    (file,) = tmp_path.iterdir()
    plain = iso(FROM_MS).replace(":", ""), iso(TO_MS).replace(":", "")
    assert file.name == f"kquota-report-demo-{plain[0]}Z_to_{plain[1]}Z.html"
    name, _, sentence = out.partition("\n")
    assert (code, name, err) == (0, file.name, "")
    assert SENTENCE.fullmatch(sentence.replace("\n", " ", sentence.count("\n") - 1))
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_each_form_is_what_its_name_says(tables: Path, tmp_path: Path) -> None:
    paths = {form: tmp_path / f"page.{form}" for form in ("md", "csv", "json")}
    for form, path in paths.items():
        option = "--output" if form == "json" else "--format"  # the name that all other commands have
        assert report(tables, option, form, "--to", str(path))[0] == 0
    assert paths["md"].read_text(encoding="utf-8").startswith("# Kafka quota report: cluster demo\n")
    with zipfile.ZipFile(paths["csv"]) as archive:
        assert archive.read("report.csv").startswith(b"name,value\ncluster_id,demo\n")
    envelope = json.loads(paths["json"].read_text(encoding="utf-8"))
    assert (envelope["command"], envelope["version"], len(envelope["rows"])) == ("kquota report", 1, 1)
    assert envelope["rows"][0]["head"]["from_ms"] == FROM_MS


@pytest.mark.parametrize(
    ("to", "asked", "form"),
    [
        ("x.html", None, "html"), ("x.HTM", None, "html"), ("x.md", None, "md"), ("x.csv", None, "csv"),
        ("x.csv.zip", None, "csv"), ("a.md/x.json", None, "json"), ("x.json", "json", "json"), ("x.txt", "md", "md"),
        ("-", None, "html"), ("-", "csv", "csv"), (None, None, "html"), (None, "json", "json"),
    ],
)  # fmt: skip
def test_the_ending_of_the_file_names_the_format(to: str | None, asked: str | None, form: str) -> None:
    assert report_format(to, asked) == form


def test_a_file_that_ends_in_json_is_json_without_another_option(tables: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.json"
    assert report(tables, "--to", str(path))[0] == 0
    assert json.loads(path.read_text(encoding="utf-8"))["command"] == "kquota report"


@pytest.mark.parametrize("form", ["md", "csv"])
def test_a_dash_is_standard_output_in_utf_8_and_nothing_else_is_printed_there(
    tables: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    arguments = [
        "report",
        "--config",
        str(tables / "kquota.yaml"),
        "--period",
        PERIOD,
        "--to",
        "-",
        "--format",
        form,
    ]
    assert main(arguments) == 0
    if form == "md":
        assert EMOJI.split()[1] in out.getvalue().decode("utf-8")
    else:
        with zipfile.ZipFile(out) as archive:
            assert archive.testzip() is None


def test_top_is_the_length_of_lists(tables: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.json"
    report(tables, "--format", "json", "--top", "1", "--to", str(path))
    row = json.loads(path.read_text(encoding="utf-8"))["rows"][0]
    assert [len(of_type["talkers"]) for of_type in row["talkers"]] == [1] * len(row["talkers"])
    assert len(row["throttled"]) == 1 <= row["throttled_left_out"]


def test_a_folder_gets_a_dated_page_the_latest_and_one_for_each_user(tables: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    code, out, err = report(tables, "--folder", str(folder), "--tenants", "all", "--format", "md")
    assert (code, err) == (0, "")
    dated, latest = sorted(path for path in folder.iterdir() if path.is_file())
    assert (latest.name, latest.read_bytes()) == ("latest.md", dated.read_bytes())
    pages = sorted(path.name for path in (folder / "tenants").iterdir())
    users = users_of(tables)
    assert out.endswith(f"pages of {len(users)} users\n")
    assert [name for name in pages if name.endswith("-latest.md")] == sorted(
        f"{safe_name(user)}-latest.md" for user in users
    )
    assert len(pages) == 2 * len(users) > 2 * len(HOSTILE)
    assert not [name for name in pages if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or len(name) > 200]
    alice = (folder / "tenants" / "alice-latest.md").read_text(encoding="utf-8")
    assert alice.startswith("# Kafka quota report: user alice on cluster demo\n")
    assert "You were throttled" in alice
    assert "bob" not in alice


def users_of(tables: Path) -> list[str]:
    """As `kquota usage` lists them."""
    _, out, _ = run("usage", "--config", str(tables / "kquota.yaml"), "--output", "json")
    return sorted({row["user"] for row in json.loads(out)["rows"]} - {""})


def test_a_page_replaces_the_one_before_in_one_step(tmp_path: Path) -> None:
    page = tmp_path / "latest.html"
    replace_file(page, b"first")
    old = page.open("rb")
    replace_file(page, b"second")
    with old:
        assert old.read() == b"first"
    assert page.read_bytes() == b"second"
    assert [path.name for path in tmp_path.iterdir()] == ["latest.html"]


def test_a_page_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    with pytest.raises(UserError, match="cannot be written: Is a directory"):
        replace_file(tmp_path / "page", b"text")
    with pytest.raises(UserError, match="cannot be written: No such file"):
        replace_file(tmp_path / "none" / "page", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tenants", "all"), "kquota: --tenants: needs --folder, the folder that the pages are written into\n"),
        (
            ("--tenants", "all", "--folder", "x", "--tenant", "bob"),
            "kquota: --tenants: all users' pages and --tenant, one user's: give one of them\n",
        ),
        (
            ("--to", "/no/folder/page.html"),
            "kquota: /no/folder/page.html: cannot be written: No such file or directory: give another file or folder\n",
        ),
        (("--folder", "/dev/null/x"), "kquota: /dev/null/x: cannot be made: Not a directory: give another folder\n"),
        (
            ("--to", "page.json", "--format", "html"),
            "kquota: --to page.json is json and --format is html: leave out --format, or change the ending\n",
        ),
        (
            ("--to", "page.pdf"),
            f"kquota: --to page.pdf: no format has this ending: use {ENDINGS}, or add --format\n",
        ),
    ],
    ids=["tenants without folder", "tenants and tenant", "no folder", "not a folder", "contradiction", "ending"],
)  # fmt: skip
def test_what_cannot_be_is_one_line_and_exit_code_1(
    tables: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert report(tables, *arguments) == (1, "", message)


def test_a_period_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("report", "--period", "yesteryear")
    assert ended.value.code == 2


def test_a_period_without_traffic_is_said_with_what_there_is(tables: Path) -> None:
    code, out, err = run(
        "report", "--config", str(tables / "kquota.yaml"), "--period", "2001-01-01..2001-01-02"
    )
    assert (code, out) == (1, "")
    assert err.startswith("kquota: no traffic from 2001-01-01 00:00:00 UTC to 2001-01-03 00:00:00 UTC: ")


def test_names_of_files_are_safe_short_and_never_shared() -> None:
    names = ["alice", "Alice", "ALICE", "a/b", "a_b", "..", ".", "", "../../etc/passwd", "con\n", "x" * 300, "x" * 301,
             "CN=alice,OU=ops", "nul", "日本", "-rf"]  # fmt: skip
    made = [safe_name(name) for name in names]
    assert made[0] == "alice"
    assert made[4] == "a_b"
    assert len({name.lower() for name in made}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9._-]{1,80}", name) and name.strip(".") for name in made)


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "name"),
    [
        (0, DAY_MS, "1970-01-01"),
        (0, 7 * DAY_MS, "1970-01-01_to_1970-01-07"),
        (3_600_000, 7_200_000, "1970-01-01T010000Z_to_1970-01-01T020000Z"),
    ],
)
def test_the_name_of_a_period_is_its_days_or_its_times(from_ms: int, to_ms: int, name: str) -> None:
    assert period_name(Period(from_ms, to_ms)) == name


def test_the_job_is_the_command(tables: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "jobs/report.py"), "--config", str(tables / "kquota.yaml"), "--period", PERIOD,
         "--folder", str(tmp_path)],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "latest.html").read_bytes().startswith(b"<!DOCTYPE html>")
