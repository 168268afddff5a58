"""A temporary copy of the checkout, in which the mutants run: neither the work tree nor a killed run is harmed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.mutants.sites import Site
from tests.support.places import ROOT

_NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".kquota", ".hypothesis", ".*_cache", "__pycache__", "build", "dist", "*.egg-info",
    "spark-warehouse", "metastore_db", "derby.log",
)  # fmt: skip
_MOST_MEMORY = 8 * 2**30
"""Maximum bytes that a process may write to: some mutants grow a list without an end."""


class Checkout:
    """The copy.

    Args:
        scratch: an empty directory.
        seed: what the tests draw by.
    """

    def __init__(self, scratch: Path, seed: int) -> None:
        self.root = scratch / "checkout"
        self._scratch, self._seed = scratch, seed
        (scratch / "tmp").mkdir()
        shutil.copytree(ROOT, self.root, ignore=_NOT_COPIED)

    @contextmanager
    def mutated(self, site: Site) -> Iterator[None]:
        """The copy with one mutant."""
        file = self.root / site.path
        source = file.read_bytes()
        try:
            _replace(file, site.applied(source))
            yield
        finally:
            _replace(file, source)
            shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)

    def run(self, module: Sequence[str], arguments: Sequence[str], most_s: float | None) -> tuple[int, str]:
        """Run pytest in the copy, and end whatever it leaves running.

        Args:
            module: the words after `python -m` that start pytest.
            arguments: those of pytest.
            most_s: time limit in seconds.

        Returns:
            Exit code and output.

        Raises:
            subprocess.TimeoutExpired: the tests did not end in time.
        """
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "KQUOTA_SEED": str(self._seed),
            "TMPDIR": str(self._scratch / "tmp"),
        }
        command = [sys.executable, "-m", *module, "-q", "-p", "no:cacheprovider", *arguments]
        with subprocess.Popen(
            command, cwd=self.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        ) as process:  # fmt: skip
            try:
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
                output, _ = process.communicate(timeout=most_s)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, output


def _replace(file: Path, source: bytes) -> None:
    """Write a module, and remove its compiled form: Python compares only size and second of the change."""
    file.write_bytes(source)
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()
