"""Which tests execute each line: recorded once for a state of the code, and kept in `.kquota/mutants`."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import time
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from coverage import CoverageData

from tests.mutants.checkout import Checkout
from tests.mutants.sites import ROOMS, Site
from tests.support.places import ROOT

_KEPT_IN = ROOT / ".kquota" / "mutants"
_HASHED = ("kquota_spark", "tests")
_LINES, _TESTS = "lines.sqlite", "tests.json"
_SPARK = "tests/spark"
_LAST_OUTPUT_LINES = 30


class Evidence:
    """What a run of the tests without a mutant recorded.

    Args:
        directory: where the record is.
        folders: the folders of the tests, in the order in which they run.
    """

    def __init__(self, directory: Path, folders: Sequence[str]) -> None:
        self._folders = folders
        recorded = json.loads((directory / _TESTS).read_text(encoding="utf-8"))
        self.failed = frozenset[str](recorded["failed"])
        """Tests that fail without a mutant; they catch none."""
        self._seconds: dict[str, float] = recorded["seconds"]
        self._users: dict[str, list[str]] = recorded["users"]
        self._data = CoverageData(str(directory / _LINES))
        self._data.read()

    def batches(self, site: Site) -> list[list[str]]:
        """What to run for a mutant: pytest's arguments, one batch after the other until one catches it.

        The tests run folder by folder. In a folder, files that import the module come first, and quick files before
        slow ones. Lines without a test here may run on Spark's workers, which are other processes.
        """
        room = site.path.split("/")[1]
        direct = _importing_files(site.path)
        tests = self._tests(site, direct)
        if not tests:
            unseen = self._folders if site.is_at_import else self._given([f"tests/unit/{room}", _SPARK])
            return self._whole(unseen)
        file_s = dict.fromkeys(map(_file, tests), 0.0)
        for test in tests:
            file_s[_file(test)] += self._seconds[test]

        def group(test: str) -> tuple[int, bool]:
            return self._position(test), _file(test) not in direct

        ordered = sorted(tests, key=lambda test: (group(test), file_s[_file(test)], test))
        batches = [list(batch) for _, batch in groupby(ordered, key=group)]
        return [*batches, *self._whole(self._given([_SPARK]) if room == "pipeline" else [])]

    def seconds(self, arguments: Iterable[str]) -> list[float]:
        """How long each test took that these arguments name."""
        named = tuple(arguments)
        return [seconds for test, seconds in self._seconds.items() if test.startswith(named)]

    def _tests(self, site: Site, direct: Collection[str]) -> set[str]:
        """The tests of a site: what executes it; for what runs at import, what imports or executes the module."""
        by_line: dict[int, list[str]] = self._data.contexts_by_lineno(site.path)
        first, last = (0, max(by_line, default=0)) if site.is_at_import else site.lines
        names = set[str]().union(*(by_line.get(line, ()) for line in range(first, last + 1)))
        found = {test for name in names for test in self._users.get(name, (name,))}
        if site.is_at_import or "" in names:
            found |= {test for test in self._seconds if _file(test) in direct}
        return {test for test in found - self.failed if test in self._seconds}

    def _whole(self, folders: Iterable[str]) -> list[list[str]]:
        """A batch of each folder, without tests that fail anyway."""
        return [[folder, *(f"--deselect={test}" for test in sorted(self.failed))] for folder in folders]

    def _given(self, folders: Iterable[str]) -> list[str]:
        """Those of the folders that are to run."""
        return [
            folder
            for folder in folders
            if (ROOT / folder).is_dir() and any(Path(folder).is_relative_to(given) for given in self._folders)
        ]

    def _position(self, test: str) -> int:
        return next(
            number for number, folder in enumerate(self._folders) if Path(_file(test)).is_relative_to(folder)
        )


def evidence(checkout: Checkout, folders: Sequence[str]) -> Evidence:
    """The record of the present code, from `.kquota/mutants` or by a run of the tests under coverage."""
    directory = _KEPT_IN / _key(folders)
    if not directory.is_dir():
        part = directory.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        print(f"running {', '.join(folders)} once to record which tests execute each line", flush=True)
        began_s = time.monotonic()
        _record(checkout, folders, part)
        part.rename(directory)
        print(f"recorded in {time.monotonic() - began_s:.0f} s", flush=True)
    return Evidence(directory, folders)


def _record(checkout: Checkout, folders: Sequence[str], directory: Path) -> None:
    config = directory / "coverage.ini"
    source = ",".join(f"kquota_spark/{room}" for room in ROOMS)
    config.write_text(
        f"[run]\ndata_file = {directory / _LINES}\nrelative_files = true\ncore = ctrace\nsource = {source}\n",
        encoding="utf-8",
    )
    pytest_under_coverage = ["coverage", "run", f"--rcfile={config}", "-m", "pytest"]
    plugin = ["-p", "tests.mutants.recording", "--record", str(directory / _TESTS)]
    code, output = checkout.run(pytest_under_coverage, [*plugin, *folders], None)
    if code not in (0, 1):
        last = "\n".join(output.splitlines()[-_LAST_OUTPUT_LINES:])
        raise SystemExit(f"{last}\npytest ended with exit code {code}; no mutant was run")


def _key(folders: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(folders).encode())
    for file in sorted(file for name in _HASHED for file in (ROOT / name).rglob("*")):
        if file.is_file() and file.suffix != ".pyc":
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(ROOT)} {content}\n".encode())
    return digest.hexdigest()[:16]


def _file(test: str) -> str:
    return test.partition("::")[0]


@cache
def _importing_files(path: str) -> frozenset[str]:
    """Test files that import a module, themselves or through what tests share."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    tests = (file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(test for test in tests if module in _imported(test, ()))


def _imported(path: str, above: tuple[str, ...]) -> frozenset[str]:
    """Names that a file under `tests` imports, and those that its helpers under `tests` import."""
    found = _imported_names(path)
    helpers = {f"{name.replace('.', '/')}.py" for name in found if name.startswith("tests.")}
    nested = [
        _imported(helper, (*above, path))
        for helper in helpers
        if helper not in above and (ROOT / helper).is_file()
    ]
    return found.union(*nested)


@cache
def _imported_names(path: str) -> frozenset[str]:
    found = set[str]()
    for node in ast.walk(ast.parse((ROOT / path).read_bytes())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)
