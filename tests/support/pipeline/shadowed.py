"""Usage judged under enforced and shadow quotas, in micro-batches, and the open loop of `whatif` beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.govern.govern import Governor, RequestCoverage, RuleGovernor
from kquota_spark.model.govern.traffic import Traffic, governed_seconds_of
from kquota_spark.model.loops.open_loop import Judged, judged
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import RuleBook, RulePeriod, rule_periods
from kquota_spark.pipeline.bucket_judge import Configs, ShardJudge
from kquota_spark.pipeline.govern import sharded_batch
from kquota_spark.pipeline.known import BrokerWindows, Known
from kquota_spark.pipeline.sent import unpacked_pieces
from kquota_spark.pipeline.shadow.rules import Shadow, ShadowPin, differing
from kquota_spark.replay.files import replay_files
from kquota_spark.replay.rows import usage_rows
from tests.support.pipeline.governed_requests import usage_batch

Values = Mapping[Entity, Mapping[Any, float]]
Row = dict[str, Any]
Place = tuple[int, str, str, str, int]
"""Broker, quota type, user and client-id tag, second."""
CONFIG = RateConfig()
PIN = ShadowPin("lower", "v1", 0)


class Verdict(NamedTuple):
    """One second of a bucket."""

    throttled_requests: int = 0
    total_throttle_ms: int = 0
    throttle_ms: int = 0
    unknown_requests: int = 0


class _Everyone(RuleGovernor):
    """The same quotas; the thread time of all clients is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "coverage", RequestCoverage(is_everyone=True))


def usage_of(capture: Path, quotas: Path, cluster_id: str = "demo", *, apply_lag_ms: int = 0) -> list[Row]:
    """Rows of `usage` of a capture with the thread time of all clients, by second.

    Args:
        capture: folder with the logs.
        quotas: the quotas in force.
        cluster_id: of the rows.
        apply_lag_ms: delay of each edit.
    """
    logs = sorted(
        (int(path.name.split("-")[1].split(".")[0]), path) for path in capture.glob("broker-*.log.gz")
    )
    book = RuleBook(rule_periods(read_quota_file(quotas), apply_lag_ms=apply_lag_ms))
    found = replay_files(logs, _Everyone(book), CONFIG)
    merged: dict[tuple[Any, ...], Row] = {}
    for row in usage_rows(cluster_id, found):  # an edit within a second cuts its row
        key = tuple(row[name] for name in ("broker_id", "quota_type", "user", "client_id", "second"))
        points = [*merged[key]["points"], *row["points"]] if key in merged else row["points"]
        merged[key] = {**row, "points": sorted(points, key=lambda point: tuple(point.values()))}
    return sorted(merged.values(), key=lambda row: (row["second"], repr(row["user"]), row["client_id"]))


def book_of(values: Values) -> RuleBook:
    """Quotas that hold at all times."""
    return RuleBook(RulePeriod(entity, found, 0, None, None) for entity, found in values.items())


def known(enforced: RuleBook, shadow: Values | None, pin: ShadowPin = PIN) -> Known:
    """What a worker knows."""
    beside = None
    if shadow is not None:
        beside = Shadow(pin, RuleGovernor(book_of(shadow)), differing(enforced, shadow, 0))
    return Known(RuleGovernor(enforced), 2**60, BrokerWindows(CONFIG), {}, shadow=beside)


class Job:
    """The end of the query of the log, from usage to rows of tables; between micro-batches its state is bytes."""

    def __init__(self, shards: int = 5) -> None:
        self.shards, self.state = shards, dict[int, bytes]()
        self.shadow, self.decisions = list[Row](), list[Row]()

    def run(self, rows: Iterable[Row], knows: Known) -> None:
        """One micro-batch."""
        in_us = [{**row, "second": row["second"] * 1_000} for row in rows]
        sharded = sharded_batch(usage_batch(in_us), knows, self.shards).to_pylist()
        by_shard: dict[int, list[bytes]] = {}
        for row in sharded:
            by_shard.setdefault(row["shard"], []).append(row["pieces"])
        for shard, packed in by_shard.items():
            judge = ShardJudge(Configs(CONFIG, CONFIG), self.shards, self.state.get(shard))
            found = judge.judge(map(unpacked_pieces, packed))
            if judge.shadow is not None and (rows_of := judge.shadow.rows) is not None:
                self.shadow += rows_of.to_pylist()
            for each in found:
                self.decisions += [
                    {"bucket": (each.manager, each.bucket), "decision": one.decision} for one in each.judged
                ]
            state = judge.state
            if state is None:
                self.state.pop(shard, None)
            else:
                self.state[shard] = state


def run_batches(rows: Sequence[Row], knows: Known, seconds: int, job: Job | None = None) -> Job:
    """Rows of usage in micro-batches of some seconds."""
    job = job or Job()
    for _, group in groupby(rows, key=lambda row: row["second"] // 1_000 // seconds):
        job.run(list(group), knows)
    return job


def verdicts_of(job: Job) -> dict[Place, Verdict]:
    """The seconds of the shadow: from its table, else the enforced verdict, since the table has all differences."""
    found: dict[Place, Verdict] = {}
    for row in job.decisions:
        manager, (user, client_id, _) = row["bucket"]
        decision = row["decision"]
        place = manager.broker_id, manager.quota_type.value, user, client_id, decision.second_ms
        found[place] = Verdict(decision.throttled_requests, decision.total_throttle_ms, decision.throttle_ms)
    for row in job.shadow:
        found[place_of(row)] = Verdict(*(row[name] for name in Verdict._fields))
    return {place: verdict for place, verdict in found.items() if any(verdict)}


def place_of(row: Row) -> Place:
    """The key of a row of `shadow_decisions`."""
    second_ms = round(row["second"].timestamp() * 1_000)
    return row["broker_id"], row["quota_type"], row["bucket_user"], row["bucket_client_id"], second_ms


def open_loop(rows: Sequence[Row], enforced: RuleBook, shadow: Values) -> dict[Place, Verdict]:
    """The seconds of the shadow by the open loop, as `whatif` judges them."""
    traffic = [
        Traffic(
            row["broker_id"], QuotaType(row["quota_type"]), Principal("User", row["user"]), row["client_id"],
            row["second"], [Point(**point) for point in row["points"]],
        )
        for row in rows
    ]  # fmt: skip
    was = _judged(traffic, RuleGovernor(enforced), is_recorded=True)
    tried = _judged(traffic, RuleGovernor(book_of(shadow)), is_recorded=False)
    found: dict[Place, Verdict] = {}
    inferred = {
        (key[0], each.point): each.limit_per_s
        for key, (_, of_bucket) in was.items()
        for each in of_bucket
        if each.is_inferred
    }
    for key, (limits, of_bucket) in tried.items():
        is_same = key in was and was[key][0] == limits
        verdicts = was[key][1] if is_same else of_bucket
        for second_ms, group in groupby(verdicts, key=lambda each: each.point.record_time_ms // 1_000):
            of_second = list(group)
            unknown = [
                each
                for each in of_second
                if each.is_unknown
                or (
                    each.limit_per_s is not None
                    and inferred.get((key[0], each.point), each.limit_per_s) != each.limit_per_s
                )
            ]
            throttles = [
                each.throttle_ms for each in of_second if each.throttle_ms > 0 and each not in unknown
            ]
            broker_id, quota_type, bucket = key
            place = broker_id, quota_type.value, bucket.user, bucket.client_id, second_ms * 1_000
            found[place] = Verdict(len(throttles), sum(throttles), max(throttles, default=0), len(unknown))
    return {place: verdict for place, verdict in found.items() if any(verdict)}


_Limits = list[tuple[object, ...]]


def _judged(
    traffic: Sequence[Traffic], governor: Governor, *, is_recorded: bool
) -> dict[tuple[int, QuotaType, Bucket], tuple[_Limits, list[Judged]]]:
    return {
        key: (
            [(each.second_ms, each.governing.limit_per_s, each.points) for each in of_bucket],
            judged(key[1], of_bucket, CONFIG, is_recorded=is_recorded),
        )
        for key, of_bucket in governed_seconds_of(traffic, governor).items()
    }
