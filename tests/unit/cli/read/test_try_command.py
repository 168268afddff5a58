"""`kquota try`: from nothing to tables, a report and commands that answer, without Kafka, Spark and Java."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from kquota_spark.cli.main import main

pytestmark = pytest.mark.timeout(300)  # seconds on a calm machine, more beside other work


def test_the_bundled_log_becomes_tables_and_a_report_and_all_commands_that_it_names_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["try"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "5,000 lines of a Kafka 4.1.1 broker: 11 of 17 buckets were throttled, client legacy most of all:",
        "34.3 s of delay",
    ]
    folder = tmp_path / ".kquota" / "try"
    assert (folder / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert main(["try", "--output", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["lines"], answer["throttled_buckets"], answer["buckets"]) == (5_000, 11, 17)
    # The sum of throttleTimeMs in the lines of PRODUCE requests with the client id legacy.
    assert answer["worst"] == {"bucket": "client legacy", "delay_ms": 34_305}
    assert len(answer["next"]) == 5
    for command in answer["next"]:
        assert main(shlex.split(command)[1:]) == 0
        assert capsys.readouterr().out


def test_the_tables_are_written_once_and_a_cut_off_start_is_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sample"
    assert main(["try", "--folder", str(folder)]) == 0
    commits = sorted((folder / "tables" / "decisions" / "_delta_log").iterdir())
    assert main(["try", "--folder", str(folder)]) == 0
    assert sorted((folder / "tables" / "decisions" / "_delta_log").iterdir()) == commits
    (folder / "tables").rename(folder / "tables.unfinished")
    assert main(["try", "--folder", str(folder)]) == 0
    assert not (folder / "tables.unfinished").exists()
    assert capsys.readouterr().err == "writing the tables of the bundled log\n" * 2


def test_two_at_once_in_one_folder_write_the_tables_once_and_both_answer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kquota_spark.cli.main", "try", "--folder", str(tmp_path / "sample")]
    both = [subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) for _ in range(2)]
    ended = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    (one, _), (other, _) = ended
    assert one == other and one.startswith("5,000 lines of a Kafka 4.1.1 broker: ")
    lines = [line for _, errors in ended for line in errors.splitlines()]
    assert lines.count("writing the tables of the bundled log") == 1
    assert not (tmp_path / "sample" / "tables.unfinished").exists()


def test_a_second_one_waits_for_the_first(tmp_path: Path) -> None:
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    command = [sys.executable, "-m", "kquota_spark.cli.main", "try", "--folder", str(tmp_path)]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"waiting for another kquota try in {tmp_path}\n"
        assert list(tmp_path.iterdir()) == []
        os.close(lock)
        assert process.wait(timeout=120) == 0
    assert (tmp_path / "report.html").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kquota.yaml").write_text("cluster_id: mine\n", encoding="utf-8")
    assert main(["try", "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"kquota: {tmp_path} holds other files: give another --folder\n"
    assert (tmp_path / "kquota.yaml").read_text(encoding="utf-8") == "cluster_id: mine\n"
    assert [path.name for path in tmp_path.iterdir()] == ["kquota.yaml"]


def test_a_folder_with_an_odd_name_works_and_its_commands_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "it's a: #try"
    assert main(["try", "--folder", str(folder), "--output", "json"]) == 0
    first = json.loads(capsys.readouterr().out)["next"][0]
    assert shlex.split(first) == ["kquota", "throttled", "--config", str(folder / "kquota.yaml")]
    assert main(shlex.split(first)[1:]) == 0


def test_neither_spark_nor_java_is_needed(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; from kquota_spark.cli.main import main;"
        f"sys.exit(main(['try', '--folder', {str(tmp_path / 'sample')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "writing the tables of the bundled log\n")
