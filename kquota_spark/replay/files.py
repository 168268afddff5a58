"""The replay of request-log files without Spark; it uses the parser and the model of the job."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from kquota_spark.errors import UserError
from kquota_spark.formats.request_log.line import Request, RequestLogParser, Unreadable
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.model.govern.govern import Governed, Governor
from kquota_spark.model.measure.points import CONTROLLER_ID, Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket, Tags
from kquota_spark.model.replay.decision import Decision, GovernedSecond, judge_bucket, replay_of
from kquota_spark.model.replay.log_beginning import LogBeginning, Restarts, cut_gap
from kquota_spark.model.replay.replay import Verdict
from kquota_spark.pipeline.charges import CLIENT_KEYS, charges_of
from kquota_spark.pipeline.ingest import request_batch
from kquota_spark.pipeline.known import gaps_at
from kquota_spark.pipeline.restarts import broker_lines
from kquota_spark.process.notices import notice
from kquota_spark.replay.log_lines import line_parts, log_lines

_BROKER_IN_NAME = re.compile(r"broker-?(\d+)")
_REPORT_S = 2.0
_MOST_REASONS = 1_000
_OTHER_REASONS = "other reasons"
"""Counts reasons beyond the first 1,000. Reasons contain versions and positions, so a log may have millions of them."""
_CHARGE_KEYS = ("kafka_offset", *CLIENT_KEYS)


_Identity = tuple[int, QuotaType, Principal, str]


class BucketKey(NamedTuple):
    """One quota sensor of one broker. A mutation bucket is one per cluster, with the id `CONTROLLER_ID`."""

    broker_id: int
    quota_type: QuotaType
    bucket: Bucket


@dataclass(slots=True)
class Replay:
    """The result of a replay, by bucket in order of names; `unreadable` counts lines by reason."""

    lines: int = 0
    counted: int = 0
    duplicates: int = 0
    unreadable: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    governed_seconds: dict[BucketKey, list[GovernedSecond]] = field(default_factory=dict)
    verdicts: dict[BucketKey, list[Verdict]] = field(default_factory=dict)
    decisions: dict[BucketKey, list[Decision]] = field(default_factory=dict)


def broker_id_of(path: Path, given: int | None) -> int:
    """The broker id of a log file: `given`, or from `broker-<id>` in the name of the file or its folder.

    Raises:
        UserError: no id is given, and neither name contains one.
    """
    if given is not None:
        return given
    match = _BROKER_IN_NAME.search(path.name) or _BROKER_IN_NAME.search(path.absolute().parent.name)
    if match is None:
        raise UserError(
            f"{terminal_text(str(path))}: no broker-<id> in the name: say which broker with --broker ID"
        )
    return int(match.group(1))


def replay_files(
    files: Sequence[tuple[int, Path]],
    governor: Governor,
    config: RateConfig,
    log_time_zone: str = "UTC",
    log_time_zones: Mapping[int, str] | None = None,
    mutation_config: RateConfig | None = None,
) -> Replay:
    """Replay log files, each with its broker id.

    Args:
        files: broker id and path of each log file, in reading order.
        governor: the quotas over time.
        config: windows of byte and request quotas.
        log_time_zone: name of the time zone of the logs.
        log_time_zones: other time zones, by broker id.
        mutation_config: windows of mutation quotas; None for Kafka's defaults.

    Raises:
        UserError: a file cannot be read.
        CallbackError: the governor's callback fails.
    """
    found = Replay()
    governed_seconds = _GovernedSeconds(governor)
    reported_s = time.monotonic()
    for broker_id, path in files:
        parser = RequestLogParser((log_time_zones or {}).get(broker_id, log_time_zone))
        for lines in line_parts(log_lines(path)):
            found.lines += len(lines)
            requests, unreadable = _parsed(parser, lines, found.unreadable)
            governed_seconds.add(broker_id, requests, unreadable)
            if time.monotonic() - reported_s > _REPORT_S:
                reported_s = time.monotonic()
                notice(f"{terminal_text(path.name)}: {found.lines:,} lines")
    found.counted, found.duplicates = governed_seconds.counted, governed_seconds.duplicates
    for key, of_bucket in sorted(governed_seconds.by_bucket(config.horizon_ms).items(), key=_order):
        found.governed_seconds[key], found.verdicts[key] = of_bucket, []
        is_mutation = key.quota_type is QuotaType.CONTROLLER_MUTATION
        replay = replay_of(key.quota_type, (mutation_config or RateConfig()) if is_mutation else config)
        found.decisions[key] = judge_bucket(replay, of_bucket, found.verdicts[key])
    return found


def _parsed(
    parser: RequestLogParser, lines: Sequence[bytes], unreadable: dict[str, int]
) -> tuple[list[Request], list[Unreadable]]:
    requests, reasons = [], []
    for line in lines:
        try:
            requests.append(parser.parse(line))
        except Unreadable as reason:
            text = str(reason)
            is_counted_alone = text in unreadable or len(unreadable) < _MOST_REASONS
            unreadable[text if is_counted_alone else _OTHER_REASONS] += 1
            reasons.append(reason)
    return requests, reasons


def _order(item: tuple[BucketKey, list[GovernedSecond]]) -> tuple[int, str, str, str, Tags]:
    broker_id, quota_type, bucket = item[0]
    return broker_id, quota_type.value, bucket.user, bucket.client_id, bucket.custom_tags


class _GovernedSeconds:
    """Groups requests into the input of `judge_bucket`, without duplicate lines."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._governed: dict[_Identity, Governed] = {}
        self._points: dict[tuple[_Identity, int, int], tuple[Governed, set[Point]]] = {}
        self._beginnings: dict[int, LogBeginning] = defaultdict(LogBeginning)
        self._inner: dict[int, set[tuple[int, int]]] = defaultdict(set)
        self._restarts = Restarts()
        self.counted = 0
        self.duplicates = 0

    def add(self, broker_id: int, requests: Sequence[Request], unreadable: Sequence[Unreadable]) -> None:
        self._inner[broker_id].update(cut_gap(each.cut_ms) for each in unreadable if each.cut_ms is not None)
        unsized = [each.request for each in unreadable if each.request is not None]
        for lines in broker_lines(request_batch(broker_id, requests)):
            self._inner[broker_id].update(self._restarts.add(lines))
        beginning = self._beginnings[broker_id]
        for request in requests:
            beginning.complete_from(request.log_time_ms)
            if not request.is_forwarded:
                beginning.add(request.record_time_ms, request.correlation_id, request.connection)
        charges = charges_of(request_batch(broker_id, [*requests, *unsized]), self._governor.coverage)
        # By index of the request: whether at least one of its charges is new.
        is_new: dict[int, bool] = {}
        columns = [charges[name].to_pylist() for name in (*_CHARGE_KEYS, *Point._fields)]
        for row in zip(*columns, strict=True):
            place, bucket_of, quota_type, principal_type, user, client_id, *point = row
            identity = (bucket_of, QuotaType(quota_type), Principal(principal_type, user), client_id)
            is_new_point = self._add_point(identity, Point._make(point))
            if place < len(requests):
                is_new[place] = is_new_point or is_new.get(place, False)
        self.counted += len(is_new)
        self.duplicates += sum(not each for each in is_new.values())

    def _add_point(self, identity: _Identity, point: Point) -> bool:
        """Add a point; returns whether it is new."""
        time_ms = point.record_time_ms
        governed = self._governed.get(identity)
        if governed is None or not governed.holds_at(time_ms):
            governed = self._governor.govern(*identity, time_ms)
            self._governed[identity] = governed
        # An edit within the second begins a new group.
        key = (identity, time_ms // 1_000, governed.governing.valid_from_ms)
        points = self._points.setdefault(key, (governed, set()))[1]
        before = len(points)
        points.add(point)
        return len(points) > before

    def by_bucket(self, horizon_ms: int) -> dict[BucketKey, list[GovernedSecond]]:
        gaps = self._gaps(horizon_ms)
        buckets: dict[BucketKey, list[GovernedSecond]] = defaultdict(list)
        for (identity, second, _), (governed, points) in self._points.items():
            broker_id, quota_type, principal, client_id = identity
            second_ms = second * 1_000
            reaching = gaps_at(gaps.get(broker_id, ()), second_ms)
            governing = governed.relied_on._replace(gaps=reaching)
            of_client = GovernedSecond(
                second_ms, principal.name, client_id, governing, governed.level, governed.rule,
                governed.rule_version, sorted(points),
            )  # fmt: skip
            buckets[BucketKey(broker_id, quota_type, governed.bucket)].append(of_client)
        return buckets

    def _gaps(self, horizon_ms: int) -> dict[int, list[tuple[int, int]]]:
        """Data gaps by broker: before the log, at cut lines, and at restarts, sorted by end.

        Rings are wrong in a gap and up to the horizon after it; see `audit.gaps.log_gaps`.
        """
        gaps = {broker_id: sorted(inner) for broker_id, inner in self._inner.items()}
        for broker_id, begins in self._beginnings.items():
            if begins.complete_from_ms is not None and not begins.is_broker_start:
                gaps[broker_id] = [(0, begins.complete_from_ms), *gaps.get(broker_id, ())]
        gaps[CONTROLLER_ID] = [gap for of_broker in gaps.values() for gap in of_broker]
        return {
            broker_id: [
                (from_ms, to_ms + horizon_ms) for from_ms, to_ms in sorted(of_broker, key=itemgetter(1))
            ]
            for broker_id, of_broker in gaps.items()
        }
