"""`kquota evidence`: the chain of one decision as text and JSON, its bundle, and the reasons for which it refuses."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from kquota_spark.cli.main import main
from kquota_spark.evidence import verification
from kquota_spark.evidence.parts import LINES, TEXT
from tests.support.logs.captures import KRAFT41
from tests.support.tables.evidence_tables import Evidence, evidence_tables
from tests.support.tables.table_rows import DAY, decision, write_table
from tests.support.tables.tampered_bundles import unzipped, zipped

pytestmark = pytest.mark.timeout(300)  # seconds on a calm machine, more beside other work
NEWEST = "2026-11-21 20:05:04 UTC"
LISTED = "kquota decisions lists the seconds of a client, the newest is of"
ALICE = ("--user", "alice", "--client-id", "etl", "--at", "2026-11-21T20:03:58Z")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("kraft41")
    with evidence_tables(root, KRAFT41):
        yield root


def run(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = main(["evidence", *options])
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    code, out, err = run(capsys, *options, "--output", "json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_chain_fits_80_columns_and_its_numbers_follow_from_each_other(
    tables: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, "--tables", str(tables), *ALICE)
    lines = out.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 80
    assert lines[0] == "produce quota of alice / etl on broker 1, second 2026-11-21 20:03:58 UTC"
    text = " ".join(out.split())
    # 2,285,865 bytes in 11.352 s are 201,362.3 B/s. (201,362.3 - 200,000) / 200,000 x 11,352 ms = 77.3 ms.
    assert "rate 2,285,865 bytes / 11.352 s = 201,362.3 B/s (201 kB/s)" in text
    assert "(201,362.3 - 200,000) / 200,000 x 11.352 s = 77 ms by replay; the broker logged 76 ms" in text
    assert "rebuilt equal to the decision in the tables, byte for byte" in text


def test_json_has_the_row_the_samples_and_the_numbers_of_the_formula(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "--tables", str(tables), *ALICE)
    chain, [row] = found["chain"], found["rows"]
    assert found["rebuilt"] == {"is_equal": True, "differing": [], "is_warm": True}
    assert sum(sample["amount"] for sample in chain["samples"]) == chain["total"] == 2_285_865
    assert chain["window_ms"] == chain["line"]["record_time_ms"] - chain["samples"][0]["start_ms"] == 11_352
    assert chain["rate_per_s"] == 2_285_865 / 11.352
    assert (chain["throttle_by_replay_ms"], row["longest_throttle_by_replay_ms"]) == (77, 77)
    assert row["second"] == "2026-11-21T20:03:58Z"
    assert chain["line"]["kafka_offset"] == 4_985


def test_without_a_time_it_is_the_newest_throttled_second(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [row] = answer(capsys, "--tables", str(tables), "--type", "produce")["rows"]
    assert (
        main(["decisions", "--tables", str(tables), "--type", "produce", "--throttled", "--output", "json"])
        == 0
    )
    throttled = json.loads(capsys.readouterr().out)["rows"]
    assert row["second"] == throttled[0]["second"]
    of_second = [each for each in throttled if each["second"] == row["second"]]
    longest = ("longest_throttle_ms", "longest_throttle_by_replay_ms")
    longest_ms = max(each[name] for each in of_second for name in longest)
    assert max(row[name] for name in longest) == longest_ms


def test_a_bundle_is_verified_without_tables_and_a_false_one_names_its_link(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "alice.zip"
    code, out, _ = run(capsys, "--tables", str(tables), *ALICE, "--bundle", str(bundle))
    assert code == 0 and "alice.zip" in out
    assert bundle.stat().st_mode & 0o007 == 0  # it is about clients
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "--verify", "alice.zip")
    assert (code, err) == (0, "")
    assert "verified  alice.zip is true" in out and "(201,362.3 - 200,000)" in out
    files = unzipped(bundle.read_bytes())
    bundle.write_bytes(zipped({**files, TEXT: files[TEXT].replace(b"77 ms", b"17 ms")}))
    code, out, _ = run(capsys, "--verify", "alice.zip")
    assert code == 3
    assert out.splitlines() == [
        "alice.zip is false: its first false link is hashes",
        "hashes    evidence.txt does not have the SHA-256 of the manifest",
    ]
    code, out, _ = run(capsys, "--verify", "alice.zip", "--output", "json")
    found = json.loads(out)
    assert (code, found["is_true"], found["first_false_link"]) == (3, False, "hashes")


def test_names_of_others_are_masked_and_those_of_the_same_owner_stay(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bucket of client id legacy has requests of carol and dave."""
    options = ("--user", "carol", "--client-id", "legacy")
    config = tmp_path / "kquota.yaml"
    users = {}
    for name, owners in (("alone", ""), ("owned", f"owners: {tmp_path}/owners.yaml\n")):
        config.write_text(f"cluster_id: test\ntables: {tables}\n{owners}", encoding="utf-8")
        (tmp_path / "owners.yaml").write_text(
            "owners: [{name: band, users: [carol, dave]}]\n", encoding="utf-8"
        )
        found = answer(capsys, "--config", str(config), *options, "--bundle", str(tmp_path / f"{name}.zip"))
        lines = unzipped((tmp_path / f"{name}.zip").read_bytes())[LINES].splitlines()
        users[name] = {json.loads(line)["user"] for line in lines}
        assert found["rows"][0].get("owner") == (None if name == "alone" else "band")
    assert users == {"alone": {"carol", "user-1"}, "owned": {"carol", "dave"}}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ("--user", "nobody"),
            f"no throttled second matches --user nobody in the day before {NEWEST}: --at chooses another second",
        ),
        (
            ("--user", "nobody", "--at", "2026-11-21T20:03:58Z"),
            f"no decision matches --user nobody at 2026-11-21 20:03:58 UTC: {LISTED} {NEWEST}",
        ),
        (("--verify", "a.zip", "--user", "x"), "--verify: not with --user, a bundle is about one decision"),
        (("--verify", "none.zip"), "none.zip: cannot be read: No such file or directory"),
    ],
)
def test_an_error_is_one_line(
    options: tuple[str, ...], error: str, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "--tables", str(tables), *options) == (1, "", f"kquota: {error}\n")


def test_it_refuses_with_the_reason_where_the_lines_are_not_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with evidence_tables(tmp_path, KRAFT41) as found:
        of_tables = ("--tables", str(tmp_path))
        kept = (pc.field("client_id") != "etl") | (pc.field("kafka_offset") >= 4_900)
        rows = DeltaTable(str(tmp_path / "requests")).to_pyarrow_table().filter(kept)
        write_deltalake(str(tmp_path / "requests"), rows, mode="overwrite")
        code, out, err = run(capsys, *of_tables, *ALICE)
        assert (code, out) == (1, "")
        assert "have no row in table requests: maintain.retention.requests is how long it keeps them" in err
        _leave_out(found, tmp_path)
        code, out, err = run(capsys, *of_tables, *ALICE)
        assert (code, out) == (1, "")
        # The settings of the checkout name a Kafka that does not run.
        reason = "because of tables.requests, and the log topic does not have them: Kafka localhost:9092 did not answer"
        assert f"have no row in table requests, {reason}" in err


def _leave_out(found: Evidence, root: Path) -> None:
    """A row in place of the lines of a second, as `tables.requests: throttled` writes it."""
    [row] = [row for row in found.rows if row["users"] == ["alice"] and row["client_ids"] == ["etl"]][:1]
    write_table(
        root,
        "requests",
        {
            "cluster_id": "test", "kind": "left_out", "broker_id": 1, "record_time_ms": row["second_ms"],
            "event_date": DAY, "lines": 7, "is_out_of_time": False,
        },
    )  # fmt: skip


def test_a_decision_of_jmx_or_of_a_callback_has_no_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path, "decisions", decision(0, source="jmx", users=None, client_ids=None))
    at = ("--tables", str(tmp_path), "--at", "2026-11-21T05:40:00Z")
    line = "kquota: this decision is from JMX: a broker's own rate, for which there are no log lines\n"
    assert run(capsys, *at) == (1, "", line)
    write_table(tmp_path, "decisions", decision(1, bucket_tags='{"group": "pay"}'))
    at = ("--tables", str(tmp_path), "--at", "2026-11-21T05:40:01Z")
    line = "a quota callback decides on this cluster: its limits cannot be rebuilt without the callback's own code"
    assert run(capsys, *at) == (1, "", f"kquota: {line}\n")


@pytest.mark.parametrize("what", ["text", "other files", "too large"])
def test_a_hostile_file_is_one_line(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "MOST_BYTES", 5_000_000)  # a real one of 500 MB takes half a minute
    path = tmp_path / "x.zip"
    if what == "text":
        path.write_text("no archive", encoding="utf-8")
    elif what == "other files":
        path.write_bytes(zipped({"../../etc/passwd": b"x"}))
    else:
        names = ("manifest.json", "lines.jsonl", "rules.json", "samples.json", "result.json", "evidence.txt")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name, b"0" * 1_000_000)
    code, out, err = run(capsys, "--verify", str(path))
    assert (code, out) == (1, "")
    assert err.startswith(f"kquota: {path}: ") and err.count("\n") == 1
    assert ("ZIP" in err) == (what == "text")
