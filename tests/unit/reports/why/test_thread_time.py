"""Thread time of a bucket: the time per request on the network thread with which the replay is nearest to brokers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.counterfactuals import (
    Case,
    LimitFrom,
    Replay,
    Request,
    replay_at_recorded_times,
)
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.recorded import Wanted, recorded
from kquota_spark.store.reading import query
from tests.support.attribution.simulated import RING
from tests.support.logs.captures import ALL, Capture
from tests.support.reports.gathered_report import rule
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

COUNT, EVERY_MS, AMOUNT_US, NETWORK_US = 1_200, 25, 200, 400
"""40 requests a second for 30 s: 0.8 % of a thread by the log, which has 400 us to send each response."""
LIMIT_PERCENT = 1.0


@pytest.mark.parametrize("network_us", [60, 400, 700])
def test_the_requests_have_the_network_time_that_brokers_charged(network_us: int, tmp_path: Path) -> None:
    """Also if it is longer than the time to send, because reading a request is not in that."""
    charged_us = AMOUNT_US + network_us
    requests = [
        Request(T0_MS + EVERY_MS * order, order, 1, order, ("alice", "etl"), charged_us)
        for order in range(COUNT)
    ]
    replay = Replay(RING, T0_MS, is_thread_time=True)
    throttles = {
        request.order: ms
        for request, ms in replay_at_recorded_times(replay, Case(requests, (LimitFrom(0, LIMIT_PERCENT),)))
    }
    assert throttles
    seconds = defaultdict(list)
    for each in requests:
        throttle_ms = throttles.get(each.order, 0)
        point = Point(
            each.time_ms, each.time_ms + 1, each.order, each.order, AMOUNT_US, throttle_ms, int(PointKind.REQUEST),
            NETWORK_US,
        )  # fmt: skip
        seconds[(each.time_ms - T0_MS) // 1_000].append(point._asdict())
    rows = [usage(second, quota_type="request", points=points) for second, points in seconds.items()]
    write_table(tmp_path, "usage", *rows)
    write_table(tmp_path, "decisions", decision(0, model_variant=RING.name))
    write_table(
        tmp_path, "quota_rules", rule(Entity(user="alice"), since_s=-86_400, request_percentage=LIMIT_PERCENT)
    )
    wanted = Wanted(BucketName("request", "alice", ""), T0_MS, T0_MS + EVERY_MS * COUNT)
    found = recorded(Settings(cluster_id="demo", tables=str(tmp_path)), [wanted])[wanted]
    # A shorter time that gives the same throttles, which are whole milliseconds, is as good.
    [amount] = {request.amount for request in found.case.requests}
    assert charged_us - 1 <= amount <= charged_us
    assert found.replay.delay_ms(found.case) == sum(throttles.values())
    assert found.observed_ms == sum(throttles.values())


@pytest.mark.parametrize("capture", [ALL[0], ALL[2]], ids=lambda capture: capture.name)
def test_the_delay_by_replay_is_that_of_real_brokers(capture: Capture, tmp_path: Path) -> None:
    settings = write_capture(tmp_path, capture)
    sql = "select epoch_ms(min(usage.second)), epoch_ms(max(usage.second)) from usage where quota_type = 'request'"
    [(first_ms, last_ms)] = query(settings, ["usage"], sql).rows
    wanted = Wanted(BucketName("request", "reqhog", ""), first_ms, last_ms + 1_000)
    found = recorded(settings, [wanted])[wanted]
    assert found.observed_ms > 200_000
    # A microsecond more per request is some percent of the delay.
    assert found.replay.delay_ms(found.case) == pytest.approx(found.observed_ms, rel=0.02)
