"""What the tests drive besides Python and Java: a browser, jq, promtool, shells, other Kafkas, S3 for Spark, S3Proxy.

`make test` and `make test-all` look for them first; only the latter needs the jars of Kafka, S3A and S3Proxy.
On Debian and its kin root gets what is missing from the system's own packages; everybody else gets one line that says
what to install.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.places import CONF, DATA, ROOT
from tests.support.programs.promtool import cached_promtool, promtool
from tests.support.programs.s3_server import S3PROXY
from tests.support.spark import class_archive


class Tool(NamedTuple):
    """A program by any of its names, and the Debian packages that have it."""

    names: tuple[str, ...]
    packages: tuple[str, ...]


CHROMIUM = Tool(
    ("chromium", "chromium-browser", "google-chrome", "chrome"), ("chromium", "fonts-dejavu-core")
)
OLDEST_KAFKA, NEWEST_KAFKA = CONF / "ivy-kafka-3.7.2.xml", CONF / "ivy-kafka-4.3.0.xml"
MANGLING_KAFKA = DATA / "ivy-kafka-3.6.1.xml"
"""The last one that mangles names in a migration to KRaft (KAFKA-16222, KAFKA-16411)."""
S3A = DATA / "ivy-s3.xml"
JQ = Tool(("jq",), ("jq",))
TOOLS = (CHROMIUM, JQ, Tool(("zsh",), ("zsh",)), Tool(("fish",), ("fish",)))


def found(tool: Tool) -> str | None:
    """Where a tool is on the PATH; None if it is not there."""
    return next((path for name in tool.names if (path := shutil.which(name))), None)


def has_promtool() -> bool:
    """Whether promtool need not be fetched."""
    return shutil.which("promtool") is not None or cached_promtool().is_file()


def main(arguments: Sequence[str]) -> int:
    """Get what is missing for a tier, or say what is."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools", description=main.__doc__)
    parser.add_argument("tier", choices=("test", "test-all"))
    tier = parser.parse_args(arguments).tier
    missing = [tool for tool in TOOLS if found(tool) is None]
    packages = [package for tool in missing for package in tool.packages]
    can_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    if can_install and (missing or not has_promtool()):
        print(f"tests: installing {' '.join([*packages, 'promtool'])}", flush=True)
        _apt_get("update")
        if packages:
            _apt_get("install", "-y", "--no-install-recommends", *packages)
        missing = [tool for tool in missing if found(tool) is None]
    if missing:
        names = ", ".join(tool.names[0] for tool in missing)
        print(
            f"kquota: the tests need {names}: install them, e.g. sudo apt-get install {' '.join(packages)}",
            file=sys.stderr,
        )
        return 1
    try:
        promtool()
    except RuntimeError as error:
        print(f"kquota: {error}", file=sys.stderr)
        return 1
    if tier == "test":
        return 0
    if not class_archive.ARCHIVE.is_file():
        subprocess.run([sys.executable, "-m", class_archive.__name__], cwd=ROOT, check=True)
    return fetch((OLDEST_KAFKA, NEWEST_KAFKA, MANGLING_KAFKA, S3A, S3PROXY))


def fetch(declarations: Sequence[Path]) -> int:
    """Fetch jars, all declarations at the same time: it is a minute or two of waiting for each; 1 if one failed."""
    command = (sys.executable, "-m", "kquota_spark.embedded.setup.jars")
    running = [subprocess.Popen([*command, str(declaration)], cwd=ROOT) for declaration in declarations]
    return max(process.wait() for process in running)


def _apt_get(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-q", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"apt-get {arguments[0]}: {done.stderr.strip()[-500:]}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
