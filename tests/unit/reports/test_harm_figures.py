"""Total delay and throttled requests of a bucket: the sums over the broker's own lines, on every surface the same."""

from __future__ import annotations

from typing import Any

import pytest

from kquota_spark.io.delta_tables import create_tables
from kquota_spark.io.rebuilt_violations import rebuild_all_violations
from kquota_spark.io.tables import Tables, open_tables
from kquota_spark.reports.bucket_looks import look_at
from kquota_spark.reports.gathering import gather_report
from kquota_spark.reports.period import Period
from kquota_spark.reports.quota_tree import _HITS
from kquota_spark.reports.timeline_slots import Identity, Stretch, buckets_of
from kquota_spark.schema.harm import EPISODE_DELAY_MS, EPISODE_REQUESTS
from tests.support.logs.captures import KRAFT43_SHARE, ZK39_PLAIN
from tests.support.tables.capture_tables import write_capture

Bucket = tuple[int, str, str, str]
"""Broker, quota type, user and client id."""
Harm = dict[Bucket, tuple[int, int]]
"""Total delay in ms, and throttled requests."""

# A bucket in a second is the clients that `decisions` names: here never so many that some are left out.
_LINES = """
select decisions.broker_id, decisions.quota_type, bucket_user, bucket_client_id,
       sum(lines.observed_throttle_ms)::bigint, count(*) filter (lines.observed_throttle_ms > 0)
from decisions join requests as lines
  on lines.broker_id = decisions.broker_id and lines.quota_type = decisions.quota_type
  and lines.record_time_ms // 1000 * 1000 = epoch_ms(decisions.second)
  and list_contains(decisions.users, lines."user") and list_contains(decisions.client_ids, lines.client_id)
where lines.kind = 'request' and lines.point_kind is not null and decisions.limit_per_s is not null group by all
"""
_EPISODES = f"""
select broker_id, quota_type, bucket_user, bucket_client_id, sum({EPISODE_DELAY_MS})::bigint,
       sum({EPISODE_REQUESTS})::bigint
from violations group by all
"""
_VIOLATED = """
select broker_id, quota_type, bucket_user, bucket_client_id, sum(observed_total_throttle_ms)::bigint,
       sum(observed_throttled_requests)::bigint, sum(total_throttle_ms)::bigint
from decisions where quota_used_percent > 100 or observed_throttled_requests > 0 group by all
"""


@pytest.fixture(scope="module", params=[ZK39_PLAIN, KRAFT43_SHARE], ids=lambda capture: capture.name)
def tables(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    settings = write_capture(tmp_path_factory.mktemp("captured"), request.param)
    create_tables(settings)
    rebuild_all_violations(settings)
    with open_tables(settings, "requests", "usage", "decisions", "violations") as opened:
        yield settings, opened


@pytest.fixture
def lines(tables: Any) -> Harm:
    """By the lines; buckets without a throttle are left out."""
    return _throttled(tables[1].query(_LINES).rows)


def _throttled(rows: list[tuple[Any, ...]]) -> Harm:
    return {row[:4]: (row[4], row[5]) for row in rows if row[4]}


def _by_name(harm: Harm) -> dict[tuple[str, str, str], tuple[int, int]]:
    """The same over all brokers."""
    found: dict[tuple[str, str, str], tuple[int, int]] = {}
    for (_, *name), numbers in harm.items():
        quota_type, user, client_id = name
        before = found.get((quota_type, user, client_id), (0, 0))
        found[quota_type, user, client_id] = (before[0] + numbers[0], before[1] + numbers[1])
    return found


def test_prometheus(tables: Any, lines: Harm) -> None:
    look = look_at(tables[1], "test", from_ms=0, shown={}, logged=(), most=100)
    found = {
        (key.broker_id, key.quota_type, key.user, key.client_id): (
            one.counts.throttle_ms, one.counts.throttled_requests
        )
        for one in look.buckets
        if (key := one.key) and one.limit_per_s is not None and one.counts.throttle_ms
    }  # fmt: skip
    assert found == lines


def test_report(tables: Any, lines: Harm) -> None:
    settings, opened = tables
    first_ms, last_ms = _extent(opened)
    page = gather_report(settings, Period(first_ms, last_ms), made_at_ms=last_ms, top=1_000)
    found = {
        (one.bucket.quota_type, one.bucket.user, one.bucket.client_id): (
            one.throttled_ms, one.throttled_requests
        )
        for one in page.hurt
    }  # fmt: skip
    assert found == _by_name(lines)


def test_timeline(tables: Any, lines: Harm) -> None:
    opened = tables[1]
    stretch = Stretch(*_extent(opened))
    names = {(user or None, client_id or None) for _, _, user, client_id in lines}
    found = {
        (one.key.broker_id, one.key.quota_type, one.key.user, one.key.client_id): one.throttled_ms
        for user, client_id in names
        for one in buckets_of(opened, Identity(user, client_id), stretch)
        if one.throttled_ms
    }
    assert found == {bucket: delay_ms for bucket, (delay_ms, _) in lines.items()}


def test_tree(tables: Any, lines: Harm) -> None:
    rows = tables[1].query(_HITS, ["test", 0]).rows
    assert sum(row[-1] or 0 for row in rows) == sum(delay_ms for delay_ms, _ in lines.values())


def test_violations_have_the_sums_of_their_seconds_by_the_broker(tables: Any) -> None:
    rows = tables[1].query(_VIOLATED).rows
    assert _throttled(tables[1].query(_EPISODES).rows) == _throttled(rows)
    # The replay's sums are others, so that they cannot have been taken for the broker's.
    assert sum(row[4] for row in rows) != sum(row[6] for row in rows)


def _extent(opened: Tables) -> tuple[int, int]:
    sql = "select epoch_ms(min(second)), epoch_ms(max(second)) + 1000 from decisions"
    first_ms, last_ms = opened.query(sql).rows[0]
    return first_ms, last_ms
