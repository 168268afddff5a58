"""Of the many lines of a failed query, the one that the operator is shown."""

from __future__ import annotations

from kquota_spark.audit.progress import reason_of

_WORKER = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/spark/python/pyspark/worker.py", line 3622, in main
    func, profiler, deserializer, serializer = read_udfs(pickleSer, infile, eval_type)
ModuleNotFoundError: No module named 'kquota_spark'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat org.apache.spark.scheduler.Task.run(Task.scala:147)
"""
_JAVA = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
"""


def test_what_a_python_worker_raised_is_the_reason() -> None:
    assert reason_of(_WORKER) == "ModuleNotFoundError: No module named 'kquota_spark'"


def test_an_error_without_a_message_is_named() -> None:
    assert (
        reason_of("Traceback (most recent call last):\n  File x\nMemoryError\n\n\tat org.x.Y")
        == "MemoryError"
    )


def test_the_innermost_java_cause_is_the_reason() -> None:
    assert reason_of(_JAVA) == "Caused by: java.io.IOException: No space left on device"


def test_a_failure_of_one_line_is_shown_as_it_is_and_cut() -> None:
    assert reason_of("[STREAM_FAILED] gone") == "[STREAM_FAILED] gone"
    assert reason_of("x" * 500) == "x" * 400
    assert reason_of("") == "unknown"
