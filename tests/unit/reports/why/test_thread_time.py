"""Thread time of a bucket: the part of the network time with which the replay is nearest to the brokers."""

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
from tests.support.attribution.simulated import RING
from tests.support.reports.gathered_report import rule
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

COUNT, EVERY_MS, AMOUNT_US, NETWORK_US = 1_200, 25, 200, 400
"""40 requests a second for 30 s: 0.8 % of a thread, and 2.4 % with all of the network time."""
LIMIT_PERCENT = 1.0


@pytest.mark.parametrize("part", [0.5, 1.0])
def test_the_requests_have_the_network_time_that_brokers_charged(part: float, tmp_path: Path) -> None:
    charged_us = AMOUNT_US + round(part * NETWORK_US)
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
    assert {request.amount for request in found.case.requests} == {charged_us}
    assert found.observed_ms == sum(throttles.values())
