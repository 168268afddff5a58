"""One finding of `kquota doctor`, and the one that jobs ask for too: whether Spark finds a Java that it can run on."""

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
"""A Java that answers later than this does not start."""
_LEAST_VERSION = 17
_VERSION = re.compile(r'version "(\d+)')
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, whose JVM runs already."""


class Status(Enum):
    """How bad it is: `fail` makes the command exit with 2."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """A thing that was looked at: what, what was seen, and what to do about it (empty when all is well)."""

    status: Status
    what: str
    evidence: str
    advice: str = ""


def ok(what: str, evidence: str) -> Check:
    """All is well."""
    return Check(Status.OK, what, evidence)


def warn(what: str, evidence: str, advice: str) -> Check:
    """Something to look at; results are still right or say where they are not."""
    return Check(Status.WARN, what, evidence, advice)


def fail(what: str, evidence: str, advice: str) -> Check:
    """Results are wrong, or the audit cannot run."""
    return Check(Status.FAIL, what, evidence, advice)


def failed(what: str, error: UserError) -> Check:
    """A finding of an error, whose last part says what to do."""
    evidence, _, advice = str(error).rpartition(": ")
    return fail(what, evidence, advice)


def java_check(timeout_s: float = _MOST_S) -> Check:
    """Look where Spark looks: `JAVA_HOME` if it is set, else the PATH; its version has to come in this time."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install a JDK or JRE {_LEAST_VERSION} or later and put it on PATH, or set JAVA_HOME"
    try:
        said = subprocess.run(
            [java or "java", "-version"], capture_output=True, text=True, timeout=timeout_s, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return fail("Java", "not found, or it does not start", advice)
    version = _VERSION.search(said)
    if version is None or int(version.group(1)) < _LEAST_VERSION:
        first_line = next(iter(said.strip().splitlines()), "no version")
        return fail("Java", f"{first_line}, Spark needs {_LEAST_VERSION}", advice)
    return ok("Java", f"version {version.group(1)}")


def require_java() -> None:
    """Ask before anything is written: without Java a job would leave empty tables and a lock behind.

    Raises:
        UserError: no JVM runs yet, there is no Java for one, and Spark's own settings name none.
    """
    if _GATEWAY in os.environ or _has_spark_env():
        return
    check = java_check()
    if check.status is not Status.OK:
        raise UserError(f"Java: {check.evidence}: {check.advice}")


def _has_spark_env() -> bool:
    """Whether Spark's scripts read a file that may set `JAVA_HOME` for them alone."""
    given, home = os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME")
    folder = Path(given) if given else Path(home) / "conf" if home else None
    return folder is not None and (folder / "spark-env.sh").is_file()
