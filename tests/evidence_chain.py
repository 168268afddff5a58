"""The figures of `kquota evidence`: how many decisions are rebuilt byte for byte, and how many false bundles are found.

`python -m tests.evidence_chain` takes 1,000 random decisions of four captures and 50 tampered bundles, in minutes.
`KQUOTA_SEED=n` repeats it with another seed. Times are of the processor, so that a busy machine changes nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from kquota_spark.errors import UserError
from kquota_spark.evidence.bundle import bundle_of, prove
from kquota_spark.evidence.stored import Case, case_of
from kquota_spark.evidence.verification import verify
from tests.support.chance import Chance, drawn
from tests.support.logs.captures import ALL as CAPTURES
from tests.support.logs.captures import KRAFT41, ZK37, ZK39_PLAIN, Capture
from tests.support.tables.evidence_tables import CANARY, Evidence, evidence_tables
from tests.support.tables.tampered_bundles import TAMPERED, unzipped, zipped

FOUR = (CAPTURES[0], ZK39_PLAIN, ZK37, KRAFT41)
"""Two brokers with rules of all levels, another window, the older ring, and Kafka 4.1."""
_MOST_S = 2.0


class Figures(NamedTuple):
    """Rows of one capture: how many were rebuilt equal, refused, and the longest CPU time for one (s)."""

    rows: int
    equal: int
    refused: int
    longest_s: float


def figures_of(found: Evidence, rows: list[dict[str, Any]]) -> Figures:
    """Rebuild rows from their lines, and compare them with the table byte for byte."""
    equal = refused = 0
    longest_s = 0.0
    for row in rows:
        began_s = time.process_time()
        try:
            equal += prove(case_of(found.tables, found.settings, row), _everyone).is_equal
        except UserError as error:
            refused += 1
            print(f"refused: {error}")
        longest_s = max(longest_s, time.process_time() - began_s)
    return Figures(len(rows), equal, refused, longest_s)


def _everyone(_user: str, _client_id: str) -> bool:
    return True


def limited_produces(found: Evidence) -> list[dict[str, Any]]:
    """The decisions of produce quotas with a limit."""
    return [row for row in found.rows if row["quota_type"] == "produce" and row["limit_per_s"] is not None]


def tampered(
    found: Evidence, chance: Chance, count: int, folder: Path, *, per_bundle: int = 1
) -> Iterator[tuple[str, str, str | None]]:
    """Tampered bundles: what was changed, the expected first false link, and the found one (None for true).

    Args:
        found: the tables.
        chance: chooses decisions and changes.
        count: how many bundles.
        folder: for the files.
        per_bundle: how many of them are made of one decision.
    """
    rows, names = limited_produces(found), [*TAMPERED]
    files: dict[str, bytes] = {}
    for number in range(count):
        name = names[number % len(names)]
        change, expected = TAMPERED[name]
        path = folder / f"{number}.zip"
        if number % per_bundle == 0:
            case = case_of(found.tables, found.settings, chance.choice(rows))
            files = unzipped(bundle_of(prove(case, _everyone), _everyone))
            path.write_bytes(zipped(files))
            assert verify(path).false_link is None  # it is true before it is changed
        path.write_bytes(zipped(change(files, chance)))
        false = verify(path).false_link
        yield name, expected, None if false is None else false.name


def foreign_names(found: Evidence, row: dict[str, Any]) -> Iterator[tuple[str, set[bytes], set[bytes]]]:
    """For each user in a decision: the user, the canaries in the bundle, and those that are the user's own."""
    case = case_of(found.tables, found.settings, row)
    for user in sorted({line["user"] for line in case.lines}):
        own = {line["client_id"].encode() for line in case.lines if line["user"] == user} | {user.encode()}
        yield user, canaries_of(case, user), own


def canaries_of(case: Case, user: str) -> set[bytes]:
    """The canaries in all files of the user's bundle."""

    def is_own(of: str, _client_id: str) -> bool:
        return of == user

    files = unzipped(bundle_of(prove(case, is_own), is_own))
    return {name for data in files.values() for name in CANARY.findall(data)}


def shared_rows(found: Evidence) -> list[dict[str, Any]]:
    """The decisions of buckets that several users share."""
    return [row for row in found.rows if len(row["users"]) > 1]


def _capture(capture: Capture, rows: int, bundles: int) -> tuple[Figures, list[tuple[str, str, str | None]]]:
    chance = drawn("evidence", capture.name)
    with TemporaryDirectory() as folder, evidence_tables(Path(folder), capture) as found:
        figures = figures_of(found, chance.sample(found.rows, min(rows, len(found.rows))))
        return figures, [*tampered(found, chance, bundles, Path(folder))]


def main() -> int:
    """Print the figures; 1 if one is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--tampered", type=int, default=50)
    options = parser.parse_args()
    rows = equal = 0
    wrong: list[str] = []
    longest_s, refused, named = 0.0, 0, 0
    for number, capture in enumerate(FOUR):
        bundles = options.tampered // len(FOUR) + (number < options.tampered % len(FOUR))
        figures, false = _capture(capture, options.rows // len(FOUR), bundles)
        print(
            f"{capture.name}: {figures.equal} of {figures.rows} rows equal, longest {figures.longest_s:.2f} s of CPU"
        )
        rows, equal, longest_s = rows + figures.rows, equal + figures.equal, max(longest_s, figures.longest_s)
        refused += sum(link is not None for _, _, link in false)
        named += sum(link == expected for _, expected, link in false)
        wrong += [
            f"{what}: expected {expected}, found {link}" for what, expected, link in false if link != expected
        ]
    print(
        f"rebuilt byte for byte: {equal} of {rows}; longest row {longest_s:.2f} s of CPU, at most {_MOST_S:g} s"
    )
    print(f"tampered bundles refused: {refused} of {options.tampered}; the right link named: {named}")
    for line in wrong:
        print(line)
    leaks, bundles = _leaks()
    print(f"bundles with a name of another tenant: {leaks} of {bundles}")
    is_good = equal == rows and named == options.tampered and longest_s <= _MOST_S and not leaks
    return 0 if is_good else 1


def _leaks() -> tuple[int, int]:
    leaks = bundles = 0
    chance = drawn("evidence", "canaries")
    for capture in FOUR:
        with (
            TemporaryDirectory() as folder,
            evidence_tables(Path(folder), capture, has_canaries=True) as found,
        ):
            shared = shared_rows(found)
            for row in chance.sample(shared, min(25, len(shared))):
                for _, canaries, own in foreign_names(found, row):
                    bundles += 1
                    leaks += bool(canaries - own)
    return leaks, bundles


if __name__ == "__main__":
    raise SystemExit(main())
