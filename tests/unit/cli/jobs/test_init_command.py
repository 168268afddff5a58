"""`kquota init` ahead of any query: the file is never overwritten, and wrong options are one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.cli.jobs.init import checkpoints_beside
from kquota_spark.cli.main import main
from kquota_spark.embedded.servers import free_ports


def run(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = main(["init", *options])
    return (code, *capsys.readouterr())


def test_a_file_that_exists_is_refused_at_once_and_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text("mine", encoding="utf-8")
    # Nobody listens at port 1: the file is checked first.
    found = run(capsys, "--bootstrap-server", "127.0.0.1:1", "--yes", "--config", str(config))
    problem = f"{config} exists and is never overwritten: remove it, or name another --config"
    assert found == (1, "", f"kquota: {problem}\n")
    assert config.read_text("utf-8") == "mine"


def test_without_an_answer_no_file_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [port] = free_ports(1)
    config = tmp_path / "new" / "kquota.yaml"
    found = run(capsys, "--bootstrap-server", f"127.0.0.1:{port}", "--config", str(config))
    why = "did not answer (connection refused): check --bootstrap-server and that the server runs"
    problem = f"Kafka 127.0.0.1:{port} {why}"
    assert found == (1, "", f"kquota: {problem}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_root_of_tables_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(tmp_path / "kquota.yaml")
    code, out, err = run(
        capsys, "--bootstrap-server", "127.0.0.1:1", "--config", config, "--tables", "s3://b"
    )
    assert (code, out) == (1, "")
    assert err.startswith("kquota: --tables: scheme s3 is not supported") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("tables", "checkpoints"),
    [
        (".kquota/tables", ".kquota/checkpoints"),
        ("tables", "checkpoints"),
        ("/data/audit/", "/data/audit-checkpoints"),
        ("s3a://bucket/kquota/tables", "s3a://bucket/kquota/checkpoints"),
        ("s3a://bucket", "s3a://bucket/checkpoints"),
    ],
)
def test_checkpoints_are_beside_the_tables(tables: str, checkpoints: str) -> None:
    assert checkpoints_beside(tables) == checkpoints
