"""A throttle holds for the same whole seconds in SQL, for the tables, and in Python, for the screens and whatif."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kquota_spark.model.measure.muted_seconds import joined, muted, muted_until
from kquota_spark.schema.harm import episode_end_ms, mute_end_ms, time_throttled

THROTTLES = st.lists(
    st.tuples(st.integers(0, 40), st.one_of(st.integers(0, 3_000), st.integers(0, 60_000))), max_size=12
)
"""Start, whole seconds, and length, ms."""


@pytest.mark.parametrize(
    ("longest_ms", "end_s"), [(None, 8), (0, 8), (1, 8), (1_000, 8), (1_001, 9), (12_372, 20)]
)
def test_a_throttle_of_the_log_holds_for_whole_seconds_and_at_least_one(
    longest_ms: int | None, end_s: int
) -> None:
    # 12,372 ms are 13 seconds, from 7 until before 20
    sql = f"select {mute_end_ms('$1', '$2::int', 'true')}"
    assert duckdb.execute(sql, [7_000, longest_ms]).fetchall() == [(end_s * 1_000,)]
    assert muted(7, longest_ms or 0).end_s == end_s


def test_a_throttle_of_jmx_holds_for_its_second() -> None:
    assert duckdb.execute(f"select {mute_end_ms('7000', '12372', 'false')}").fetchall() == [(8_000,)]


@given(THROTTLES, st.integers(0, 120))
@example([(0, 2_001), (1, 500), (3, 0)], 60)  # 0 to 3 s and 3 to 4 s touch: four seconds
@example([(0, 10_000), (2, 1_000)], 5)  # the end of the period cuts the first
def test_the_time_throttled_is_the_same_in_sql_and_in_python(
    throttles: list[tuple[int, int]], end_s: int
) -> None:
    rows = [("bob", second_s * 1_000, True, length_ms, True) for second_s, length_ms in throttles]
    with duckdb.connect() as connection:
        connection.execute(
            "create table rows (name text, second_ms bigint, is_log bool, longest_ms bigint, is_throttled bool)"
        )
        if rows:
            connection.executemany("insert into rows values (?, ?, ?, ?, ?)", rows)
        found = connection.execute(
            f"with {time_throttled('name', 'rows')} select time_throttled_s from of_time", [end_s * 1_000]
        ).fetchall()
    spans = muted_until([(second_s * 1_000, length_ms) for second_s, length_ms in throttles], end_s * 1_000)
    assert (found[0][0] if found else 0) == sum(span.end_s - span.first_s for span in spans)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20_000)), min_size=1, max_size=8))
def test_an_episode_ends_when_its_last_throttle_is_over(throttles: list[tuple[int, int]]) -> None:
    last_s = max(second_s for second_s, _ in throttles)
    ends = ", ".join(mute_end_ms(str(second_s * 1_000), str(ms), "true") for second_s, ms in throttles)
    sql = f"select {episode_end_ms(str(last_s * 1_000), f'greatest({ends})')}"
    spans = joined(muted(second_s, longest_ms) for second_s, longest_ms in throttles)
    assert duckdb.execute(sql).fetchall() == [(spans[-1].end_s * 1_000,)]
