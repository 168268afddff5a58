"""A finding of `kquota doctor`, and the check that jobs make too: whether Spark finds a Java that it can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from kquota_spark.errors import UserError

_MOST_S = 30.0
"""Longest wait for Java's version, s; a Java that answers later counts as not starting."""
_LEAST_VERSION = 17
_VERSION = re.compile(r'version "(\d+)')
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Environment variable of spark-submit, which has started a JVM already."""


class Status(Enum):
    """Severity of a finding: `fail` makes the command exit with 2."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: what was checked, the evidence, and what to do about it (empty if there is no problem)."""

    status: Status
    what: str
    evidence: str
    advice: str = ""


def ok(what: str, evidence: str) -> Check:
    """A finding without a problem."""
    return Check(Status.OK, what, evidence)


def warn(what: str, evidence: str, advice: str) -> Check:
    """A finding to follow up; results are still right, or they report where they are not."""
    return Check(Status.WARN, what, evidence, advice)


def fail(what: str, evidence: str, advice: str) -> Check:
    """A finding that results are wrong, or that the audit cannot run."""
    return Check(Status.FAIL, what, evidence, advice)


def failed(what: str, error: UserError) -> Check:
    """A failed finding from an error; the last part of the error's text is the advice."""
    evidence, _, advice = str(error).rpartition(": ")
    return fail(what, evidence, advice)


def java_check(timeout_s: float = _MOST_S) -> Check:
    """Check the Java that Spark would use: that of `JAVA_HOME` if it is set, else of the PATH.

    It must print its version within `timeout_s`.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install a JDK or JRE {_LEAST_VERSION} or later and put it on PATH, or set JAVA_HOME"
    try:
        output = subprocess.run(
            [java or "java", "-version"], capture_output=True, text=True, timeout=timeout_s, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return fail("Java", "not found, or it does not start", advice)
    version = _VERSION.search(output)
    if version is None or int(version.group(1)) < _LEAST_VERSION:
        first_line = next(iter(output.strip().splitlines()), "no version")
        return fail("Java", f"{first_line}, Spark needs {_LEAST_VERSION}", advice)
    return ok("Java", f"version {version.group(1)}")


def require_java() -> None:
    """Check for Java before anything is written: without it, a job would leave empty tables and a lock behind.

    Raises:
        UserError: no JVM runs yet, no Java is found to start one, and Spark's own scripts read no `spark-env.sh`.
    """
    if _GATEWAY in os.environ or _has_spark_env():
        return
    check = java_check()
    if check.status is not Status.OK:
        raise UserError(f"Java: {check.evidence}: {check.advice}")


def _has_spark_env() -> bool:
    """Whether Spark's scripts read a `spark-env.sh`, which may set `JAVA_HOME` only for them."""
    given, home = os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME")
    folder = Path(given) if given else Path(home) / "conf" if home else None
    return folder is not None and (folder / "spark-env.sh").is_file()
