"""Finds the Java to run: version 17 to 21, from JAVA_HOME if it is set, else from PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from kquota_spark.errors import UserError

# Spark 4.2 does not start below 17; Kafka 3.9 needs the security manager's API, which Java 24 removed.
_OLDEST, _NEWEST = 17, 21
_HOW_TO_GET_IT = "install it, e.g. apt-get install openjdk-17-jre-headless, or set JAVA_HOME"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark and the brokers."""

    path: Path
    version: str


def find_java() -> Java:
    """Return the Java to use.

    Raises:
        UserError: there is none, or it is too old or too new.
    """
    path, origin = _candidate()
    if path is None:
        raise UserError(f"Java 17 or 21 is needed and was not found{origin}: {_HOW_TO_GET_IT}")
    version = _version(path)
    if version is None:
        # macOS has a `java` that only reports that Java is not installed.
        raise UserError(f"Java 17 or 21 is needed and {path} does not run{origin}: {_HOW_TO_GET_IT}")
    if not _OLDEST <= _major(version) <= _NEWEST:
        raise UserError(f"Java 17 or 21 is needed and {path} is Java {version}{origin}: {_HOW_TO_GET_IT}")
    return Java(path, version)


def _candidate() -> tuple[Path | None, str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        # Spark's own launcher uses JAVA_HOME too: falling back to PATH here would only hide the mistake.
        return (path if path.is_file() else None), f" (JAVA_HOME is {home})"
    found = shutil.which("java")
    return (Path(found) if found else None), ""


def _version(path: Path) -> str | None:
    try:
        answer = subprocess.run(
            [str(path), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return match.group(1) if match else None


def _major(version: str) -> int:
    # Up to Java 8 the first number is 1: "1.8.0_392".
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def main() -> int:
    """Print the Java that would be used, or one line about the problem; return the exit code."""
    try:
        java = find_java()
    except UserError as error:
        print(f"kquota: {error}", file=sys.stderr)
        return 1
    print(f"Java {java.version} ({java.path})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
