"""Episodes of one bucket: what is joined, what their sums are, what they are called, when they end."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from kquota_spark.audit.violations.episodes import PIECE_COLUMNS, ended_sql, folded_sql, pieces_of, queried
from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.schema.tables import DECISIONS
from tests.support.chance import Chance
from tests.support.pipeline import folded_episodes
from tests.support.pipeline.folded_episodes import BucketId, Clocks, Episode, Violation

PIECES = pieces_of(DECISIONS.arrow_schema().empty_table(), 0).schema
CLOCKS: list[tuple[str, pa.DataType]] = [
    ("cluster_id", pa.string()), ("broker_id", pa.int32()), ("source", pa.string()), ("newest_ms", pa.int64()),
]  # fmt: skip
ALICE = BucketId("demo", 1, "produce", "alice", "", None)
GAP_MS = 3_000


def over(start_ms: int, last_ms: int | None = None, **changed: Any) -> Episode:
    piece = Episode(
        start_ms, start_ms if last_ms is None else last_ms, 3, "users/alice", 1e6, 2e6, 200.0, 1, 70, 2, "log",
        ["alice"], ["etl"],
    )  # fmt: skip
    return piece._replace(**changed)


def in_columns(pieces: Iterable[tuple[BucketId, Episode]]) -> pa.Table:
    rows = [dict(zip(PIECE_COLUMNS, (*bucket, *episode), strict=True)) for bucket, episode in pieces]
    return pa.Table.from_pylist(rows, schema=PIECES)


def joined(pieces: Iterable[Episode], gap_ms: int) -> list[Episode]:
    """Those of one bucket, in order."""
    found = queried(folded_sql("pieces", gap_ms), pieces=in_columns((ALICE, piece) for piece in pieces))
    rows = found.select(PIECE_COLUMNS[len(ALICE) :]).to_pylist()
    return sorted((Episode(*row.values()) for row in rows), key=lambda episode: episode.start_ms)


def ended(
    pieces: Iterable[tuple[BucketId, Episode]], newest_ms: Mapping[tuple[str, int, str], int]
) -> list[dict[str, Any]]:
    """The pieces as episodes, with ids and ends."""
    clocks = [dict(zip(dict(CLOCKS), (*place, time_ms), strict=True)) for place, time_ms in newest_ms.items()]
    tables = {"pieces": in_columns(pieces), "clocks": pa.Table.from_pylist(clocks, pa.schema(CLOCKS))}
    rows: list[dict[str, Any]] = queried(ended_sql("pieces", "clocks", GAP_MS), **tables).to_pylist()
    return rows


@pytest.mark.parametrize(("pause_ms", "episodes"), [(3_000, 1), (4_000, 2)])
def test_a_gap_as_long_as_agreed_joins(pause_ms: int, episodes: int) -> None:
    assert len(joined([over(0, 5_000), over(5_000 + pause_ms)], GAP_MS)) == episodes


def test_a_piece_within_another_does_not_shorten_it() -> None:
    # An open episode of 10 s, a second in it that another source tells, and one just within the gap of its end.
    [found] = joined([over(0, 10_000, violated_seconds=11), over(4_000), over(13_000)], GAP_MS)
    assert (found.start_ms, found.last_ms, found.violated_seconds) == (0, 13_000, 13)


def test_rule_and_level_are_those_of_the_start_source_that_of_the_end() -> None:
    first = over(0, level=2, rule="first", limit_per_s=5.0, peak_rate_per_s=9.0, peak_used_percent=180.0)
    last = over(1_000, level=6, rule="last", limit_per_s=4.0, peak_rate_per_s=8.0, peak_used_percent=200.0)
    [found] = joined([last._replace(source="jmx", users=["bob"]), first], GAP_MS)
    assert found == first._replace(
        last_ms=1_000, limit_per_s=4.0, peak_used_percent=200.0, violated_seconds=2, throttled_ms=140,
        throttled_requests=4, source="jmx", users=["alice", "bob"],
    )  # fmt: skip


def test_harm_by_replay_and_by_the_broker_is_summed_apart() -> None:
    first = over(0, longest_throttle_ms=70, observed_throttled_ms=90, observed_throttled_requests=3)
    first = first._replace(observed_longest_throttle_ms=50)
    second = over(1_000, longest_throttle_ms=20, observed_throttled_ms=12_372, observed_throttled_requests=1)
    second = second._replace(throttled_ms=0, throttled_requests=0, observed_longest_throttle_ms=12_372)
    [found] = joined([second, first, over(2_000)], GAP_MS)  # the last one was written by an older release
    assert (found.throttled_ms, found.throttled_requests, found.longest_throttle_ms) == (140, 4, 70)
    assert (found.observed_throttled_ms, found.observed_throttled_requests) == (12_462, 4)
    assert found.observed_longest_throttle_ms == 12_372


def test_what_no_source_tells_stays_unknown_and_what_one_tells_counts() -> None:
    unknown = over(0, throttled_ms=None, throttled_requests=None, limit_per_s=None, peak_rate_per_s=None)
    [found] = joined([unknown, unknown._replace(start_ms=1_000, last_ms=1_000)], GAP_MS)
    assert (found.throttled_ms, found.throttled_requests, found.limit_per_s, found.peak_rate_per_s) == (
        None,
    ) * 4
    [found] = joined([unknown, over(1_000)], GAP_MS)
    assert (found.throttled_ms, found.throttled_requests, found.limit_per_s, found.peak_rate_per_s) == (
        70,
        2,
        1e6,
        2e6,
    )


def test_it_is_called_after_bucket_and_start_as_in_every_release() -> None:
    text = b"demo\x001\x00produce\x00alice\x00\x001795239600000"
    [row] = ended([(ALICE, over(1_795_239_600_000))], {})
    assert row["episode_id"] == hashlib.sha256(text).hexdigest()[:32]
    tagged = ALICE._replace(tags='{"group": "pay"}')
    text = b'demo\x001\x00produce\x00alice\x00\x00{"group": "pay"}\x001795239600000'
    [row] = ended([(tagged, over(1_795_239_600_000))], {})
    assert row["episode_id"] == hashlib.sha256(text).hexdigest()[:32]


def test_it_ends_when_the_time_of_its_own_source_has_passed_the_gap() -> None:
    def end_ms(bucket: BucketId, **newest_ms: int) -> int | None:
        clocks = {("demo", 1, source): time_ms for source, time_ms in newest_ms.items()}
        [row] = ended([(bucket, over(0))], clocks)
        found: int | None = row["end_ms"]
        return found

    assert end_ms(ALICE, log=3_000) is None
    assert end_ms(ALICE, log=3_001) == 1_000
    assert end_ms(ALICE, jmx=600_000) is None
    assert end_ms(ALICE._replace(broker_id=2), log=600_000) is None
    # The controller's bucket is rarely used: any broker's time is its own, of its cluster.
    assert end_ms(ALICE._replace(broker_id=CONTROLLER_ID), log=3_001) == 1_000
    assert end_ms(ALICE._replace(broker_id=CONTROLLER_ID, cluster_id="other"), log=600_000) is None


def drawn_pieces(chance: Chance) -> list[tuple[BucketId, Episode]]:
    """Seconds of a few buckets, with names of any letters, in any order."""
    names = ["", "al", "bob", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\U0001f980", "a'b", "%_", "{}"]
    pieces = []
    for number in range(chance.randint(1, 40)):
        bucket = BucketId(
            chance.choice(["demo", "other"]), chance.choice([-1, 1, 2]), chance.choice(["produce", "fetch"]),
            chance.choice(names), chance.choice(names[:2]), chance.choice([None, None, '{"group": "pay"}']),
        )  # fmt: skip
        # No second twice: which of two came first would be the order of tasks.
        start_ms = 40_000 * chance.randint(0, 2) + 1_000 * number
        harm = [chance.choice([None, 0, number]) for _ in range(7)]
        piece = Episode(
            start_ms, start_ms, chance.choice([None, 1, 3]),
            chance.choice([None, "users/alice"]), chance.choice([None, 1e6, 2.5]), chance.choice([None, 0.1, 9e9]),
            chance.choice([None, 100.1, 150.0]), 1, harm[0], harm[1],
            chance.choice(["log", "log", "jmx"]), sorted({chance.choice(names) for _ in range(3)}),
            [f"c{number + step:03}" for step in range(1, chance.choice([2, 9]))], *harm[2:6],
        )  # fmt: skip
        pieces.append((bucket, piece))
    chance.shuffle(pieces)
    return pieces


def test_the_episodes_are_those_that_releases_before_made_piece_by_piece(chance: Chance) -> None:
    broken = 0
    for _ in range(20):
        pieces = drawn_pieces(chance)
        newest_ms = {
            (cluster_id, broker_id, source): chance.randint(0, 160_000)
            for cluster_id in ("demo", "other")
            for broker_id in (1, 2)
            for source in ("log", "jmx")
            if chance.random() < 0.8
        }
        gap_ms = chance.choice([1_000, 3_000, 20_000])
        whole = set(map(as_row, folded_episodes.folded(pieces, Clocks(newest_ms), gap_ms)))
        broken += len(whole) > len({bucket for bucket, _ in pieces})
        # Folded at once, and as tasks do: each some of them, and then what they have made of them.
        tasks = [pieces[number::3] for number in range(3)]
        by_task = [queried(folded_sql("pieces", gap_ms), pieces=in_columns(task)) for task in tasks]
        for table in (
            in_columns(pieces),
            pa.concat_tables([table.cast(PIECES) for table in by_task]),
        ):
            assert episodes_of(table, newest_ms, gap_ms) == whole
    assert broken > 2


def episodes_of(
    pieces: pa.Table, newest_ms: Mapping[tuple[str, int, str], int], gap_ms: int
) -> set[tuple[Any, ...]]:
    clocks = [dict(zip(dict(CLOCKS), (*place, time_ms), strict=True)) for place, time_ms in newest_ms.items()]
    sql = f"with folded as ({folded_sql('pieces', gap_ms)}) {ended_sql('folded', 'clocks', gap_ms)}"
    rows = queried(sql, pieces=pieces, clocks=pa.Table.from_pylist(clocks, pa.schema(CLOCKS))).to_pylist()
    return {
        as_values(row["episode_id"], row["end_ms"], *(row[name] for name in PIECE_COLUMNS)) for row in rows
    }


def as_row(violation: Violation) -> tuple[Any, ...]:
    return as_values(violation.episode_id, violation.end_ms, *violation.bucket, *violation.episode)


def as_values(*values: Any) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


_WITH_A_THREAD = """
import threading
from kquota_spark.audit.violations.episodes import pieces_of
from kquota_spark.schema.tables import DECISIONS

folded, never = threading.Event(), threading.Event()

def fold():
    pieces_of(DECISIONS.arrow_schema().empty_table(), 0)
    folded.set()
    never.wait()

threading.Thread(target=fold, daemon=True).start()
folded.wait()
"""


def test_a_driver_whose_threads_still_run_ends_without_a_word_of_duckdb() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITH_A_THREAD], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
