"""What goes wrong with the machine is one line, at each door: `kquota`, and the programs of Spark."""

from __future__ import annotations

import errno
import os
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError, SchemaMismatchError

from kquota_spark.cli.door import line_of
from kquota_spark.cli.main import main
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.quota_callback import CallbackError
from tests.support.places import ROOT

FULL = "No space left on device"
FREE_SPACE = "free space there, then start again: what was committed is whole"
GIVE_RIGHT = "give this program the right to use it, then start again"


def os_error(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("a: b"), "a: b"),
        (CallbackError("it returned 3"), "it returned 3"),
        (os_error(errno.ENOSPC, "/t/x"), f"/t/x: No space left on device: {FREE_SPACE}"),
        (os_error(errno.EDQUOT), f"Disk quota exceeded: {FREE_SPACE}"),
        (os_error(errno.EFBIG), f"File too large: {FREE_SPACE}"),
        (os_error(errno.EACCES, "/t/x"), f"/t/x: Permission denied: {GIVE_RIGHT}"),
        (os_error(errno.EROFS, "/t/x"), f"/t/x: Read-only file system: {GIVE_RIGHT}"),
        (os_error(errno.EIO, "/t/x"), "/t/x: Input/output error"),
        (DeltaError("Failed to commit: No space left on device (os error 28)\n   0: <unknown>"),
         f"Failed to commit: No space left on device (os error 28): {FREE_SPACE}"),
        (DeltaError("a concurrent transaction"), "a concurrent transaction"),
        # What deltalake says of one that is full, or not to be written to.
        (OSError("Generic LocalFileSystem error\n   \x1b[31m↳\x1b[0m Unable to copy data to file\n"
                 "    \x1b[31m↳\x1b[0m No space left on device (os error 28)\n"),
         f"Generic LocalFileSystem error: Unable to copy data to file: {FULL} (os error 28): {FREE_SPACE}"),
        # What Arrow says.
        (OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
         f"Error writing bytes to file. Detail: [errno 28] No space left on device: {FREE_SPACE}"),
    ],
)  # fmt: skip
def test_errors_of_the_machine_are_one_line(error: Exception, line: str) -> None:
    assert line_of(error) == line


@pytest.mark.parametrize(
    "error",
    [KeyError("second"), TypeError("no"), ValueError("no"), AssertionError()],
)
def test_mistakes_of_ours_are_none(error: Exception) -> None:
    """They keep their traceback: who reports it can say where."""
    assert line_of(error) is None


def test_what_deltalake_refuses_of_our_rows_is_a_mistake_of_ours(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"a": [1]}))
    with pytest.raises(SchemaMismatchError) as caught:
        write_deltalake(tmp_path / "t", pa.table({"b": [1]}), mode="append")
    assert line_of(caught.value) is None


def test_what_spark_says_of_a_full_disk_is_its_reason() -> None:
    from pyspark.errors import PySparkException

    java = (
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted\n"
        "\tat org.apache.spark.Some.thing(Some.scala:1)\nCaused by: java.io.IOException: No space left on device\n"
        "\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)"
    )
    line = f"Caused by: java.io.IOException: No space left on device: {FREE_SPACE}"
    assert line_of(PySparkException(java)) == line


def failing(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    return fail


def test_kquota_says_it_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "kquota_spark.audit.past.maintain.maintain", failing(os_error(errno.ENOSPC, "/t/\x1b[2J"))
    )
    assert main(["maintain", "--tables", "/t"]) == 1
    assert capsys.readouterr().err == f"kquota: /t/\\x1b[2J: No space left on device: {FREE_SPACE}\n"


@pytest.mark.parametrize(
    ("program", "call"),
    [
        ("audit", "kquota_spark.audit.job.run_audit"),
        ("enforce", "kquota_spark.enforcement.job.run_enforcement"),
    ],
)
def test_programs_of_spark_say_it_in_a_line(
    program: str,
    call: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text("cluster_id: demo\n", encoding="utf-8")
    monkeypatch.setattr(call, failing(os_error(errno.EACCES, "/checkpoints")))
    monkeypatch.setattr("sys.argv", [f"{program}.py", "--config", str(config)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "jobs" / f"{program}.py"), run_name="__main__")
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"{program}: /checkpoints: Permission denied: {GIVE_RIGHT}\n"
