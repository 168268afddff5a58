"""Offsets of the log topics that the query passed without their lines: expired, or of a recreated topic.

If lines have expired, the Kafka source continues at the first line that exists (failOnDataLoss = false). If a partition
ends before the offset that had been read, the source takes its lines as read, in a micro-batch without rows (seen with
Spark 4.2). It then continues at that end. Two cases cannot be detected by offsets. A recreated topic may again be
longer than the old one had been read. An expired line may have an offset that the old topic had, too.

The checkpoint holds what each micro-batch covered, and `requests` holds the lines. A note beside the checkpoint names
the last micro-batch that was compared. So a restart finds what a crash left, and reports nothing twice: when retention
has deleted rows of `requests`, their offsets are missing, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import msgspec

from kquota_spark.checkpoints.checkpoints import LOG, Checkpoint
from kquota_spark.checkpoints.lineage import stored_lineage
from kquota_spark.checkpoints.notes import read_note, write_note
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError, one_line
from kquota_spark.kafka.questions import first_offsets
from kquota_spark.schema.gap_tables import EXPIRED_UNREAD, RECREATED
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.store.files import paths_within
from kquota_spark.store.reading import Tables
from kquota_spark.store.storage import delta_table, place_of

_ROWS = """
select count(distinct kafka_offset) + coalesce(sum(lines - 1), 0)::bigint from requests
where cluster_id = $1 and topic = $2 and "partition" = $3 and kafka_offset >= $4 and kafka_offset < $5
"""
_MISSING = """
select before + 1, following from (
  select following, max(last) over (order by following rows between unbounded preceding and 1 preceding) as before
  from (
    select $4 - 1 as following, $4 - 1 as last union all select $5, $5 union all
    select coalesce(first_offset, kafka_offset), kafka_offset from requests
    where cluster_id = $1 and topic = $2 and "partition" = $3 and kafka_offset >= $4 and kafka_offset < $5
  )
) where following > before + 1 order by all
"""
_AROUND = """
select broker_id, max(record_time_ms) filter (kafka_offset < $4), min(record_time_ms) filter (kafka_offset >= $5)
from requests where cluster_id = $1 and topic = $2 and "partition" = $3 and broker_id is not null
  and record_time_ms is not null and not is_out_of_time group by all order by all
"""
_BEFORE = """
select broker_id, max(record_time_ms)
from requests where cluster_id = $1 and topic = $2 and "partition" = $3 and broker_id is not null
  and record_time_ms is not null and not is_out_of_time and kafka_timestamp_ms < $4 group by all order by all
"""

_AROUND_MS = 3_600_000


class Covered(NamedTuple):
    """Offsets of a partition that a micro-batch covered; the end is exclusive, and None if the partition was gone."""

    topic: str
    partition: int
    start: int
    end: int | None
    at_ms: int
    """When the micro-batch was planned, epoch ms: all lost lines had been written before."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Lines of a partition that were not read, and by broker the times (epoch ms) of the lines read around them."""

    covered: Covered
    reason: str
    brokers: tuple[tuple[int, int, int], ...]

    @property
    def note(self) -> str:
        """The loss and what to do about it, in one line for the operator."""
        topic, partition, start, end, _ = self.covered
        where = f"{topic} partition {partition}"
        brokers = ", ".join(str(broker_id) for broker_id, _, _ in self.brokers) or "none known yet"
        uncertain = f"verdicts of its brokers ({brokers}) are uncertain there (log_gaps)"
        if self.reason == EXPIRED_UNREAD:
            lost = (end or start) - start
            return (
                f"{where}: {lost:,} offsets from {start} on expired before they were read; {uncertain}: raise "
                "retention.ms of the topic above the longest time that the audit is not running"
            )
        now = "it is gone" if end is None else f"it ends at {end}, and what it holds up to there is not read"
        return (
            f"{where}: the topic was deleted and recreated: read to {start}, now {now}; {uncertain}: "
            "let the topic be, or give the new one another name"
        )


@dataclass(frozen=True, slots=True)
class Compared:
    """The losses, and the query and last micro-batch that were compared; noted after the losses are written."""

    losses: tuple[Loss, ...] = ()
    query_id: str = ""
    batch: int = -1


class _Noted(msgspec.Struct):
    query_id: str
    batch: int
    requests: int | None = None
    heard_from_ms: dict[int, int] = {}


def lost_offsets(
    settings: Settings, through: int | None = None, paths: Sequence[str] | None = None
) -> Compared:
    """Compare `requests` with the offsets that the micro-batches since the last comparison covered.

    Args:
        settings: where the tables and checkpoints are, and the cluster.
        through: the last micro-batch with its lines in `requests`; None for the last that Spark noted as done.
        paths: the files with the lines of these micro-batches; empty if no offset is missing. None to find the files
            by their statistics.

    Raises:
        UserError: the checkpoint or the table cannot be read.
    """
    try:
        checkpoint = Checkpoint.of(settings, LOG)
        if not checkpoint.exists:
            return Compared()
        query_id, last = checkpoint.query_id, checkpoint.last_batch if through is None else through
        compared = _compared_through(settings, query_id)
        if last is None:
            return Compared((), query_id)
        if compared is None or compared >= last:
            return Compared((), query_id, last)
        covered = list(_covered(settings, checkpoint, compared, last))
    except (OSError, ValueError, KeyError) as error:
        where = place_of(settings.checkpoints, LOG)
        raise UserError(f"checkpoint {where} cannot be read: {one_line(error)}") from error
    return Compared(_losses(settings, covered, paths), query_id, last)


def checked_through(settings: Settings) -> int | None:
    """The version of `requests` up to which rows were checked for gaps; None if it is not known.

    Raises:
        UserError: the note cannot be read.
    """
    noted = _noted(settings)
    return None if noted is None else noted.requests


def heard_from(settings: Settings) -> dict[int, int]:
    """Earliest log time of a heartbeat (epoch ms) by broker, for brokers that have no request yet.

    Raises:
        UserError: the note cannot be read.
    """
    noted = _noted(settings)
    return {} if noted is None else noted.heard_from_ms


def note_compared(
    settings: Settings,
    compared: Compared,
    requests: int | None = None,
    heard_from_ms: Mapping[int, int] | None = None,
) -> None:
    """Write the note about a comparison, after its losses are written.

    Args:
        settings: where the checkpoints are.
        compared: the query and the last micro-batch that were compared.
        requests: version of the table, see `checked_through`.
        heard_from_ms: epoch ms by broker, see `heard_from`.

    Raises:
        UserError: the note cannot be written.
    """
    noted = _Noted(compared.query_id, compared.batch, requests, dict(heard_from_ms or {}))
    write_note(settings, _path(settings), msgspec.json.encode(noted))


def _path(settings: Settings) -> str:
    return place_of(settings.checkpoints, f"{LOG}.compared.json")


def _compared_through(settings: Settings, query_id: str) -> int | None:
    """The last micro-batch that was compared; None without a note.

    If the note is damaged, all micro-batches that the checkpoint still has are compared again. A loss that is found a
    second time is not written again.
    """
    found = _noted(settings)
    if found is None:
        return None
    return found.batch if found.query_id == query_id else -1


def _noted(settings: Settings) -> _Noted | None:
    """The note; None if there is none. A damaged note counts as one about no micro-batch."""
    text = read_note(settings, _path(settings))
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=_Noted)
    except msgspec.DecodeError:
        return _Noted(query_id="", batch=-1)


def _covered(settings: Settings, checkpoint: Checkpoint, after: int, last: int) -> Iterator[Covered]:
    """Covered offsets by micro-batch and partition.

    The first micro-batch with a new topic is left out, because it does not show where the topic began.
    """
    planned = set(checkpoint.planned_batches)
    for batch in range(after + 1, last + 1):
        if batch not in planned:
            continue
        if batch == 0:
            before = stored_lineage(settings).offsets
        elif batch - 1 in planned:
            before = checkpoint.source_offset(batch - 1)
        else:
            continue
        ends, at_ms = checkpoint.source_offset(batch), checkpoint.batch_time_ms(batch)
        for topic, starts in before.items():
            for partition in sorted({*starts, *ends.get(topic, ())}):
                start, end = starts.get(partition, 0), ends.get(topic, {}).get(partition)
                yield Covered(topic, int(partition), start, end, at_ms)


class _Missing(NamedTuple):
    """Offsets without a line: those of a recreated partition, or a range with an exclusive end."""

    covered: Covered
    is_recreated: bool


def _losses(settings: Settings, covered: list[Covered], paths: Sequence[str] | None) -> tuple[Loss, ...]:
    spans = list(_spans(covered))
    missing = [each for each in spans if each.is_recreated]
    missing += _expired(settings, [each.covered for each in spans if not each.is_recreated], paths)
    if not missing:
        return ()
    with Tables(settings) as tables:
        tables.open_files(REQUESTS.name, _around_them(settings, paths))
        return tuple(
            _recreated(settings, tables, each.covered)
            if each.is_recreated
            else _around(settings, tables, each.covered)
            for each in sorted(missing, key=lambda each: each.covered[:3])
        )


def _around_them(settings: Settings, paths: Sequence[str] | None) -> list[str]:
    """The files that may show the brokers and the times of the lines around a loss.

    In addition to the given files, those of the last hour before them are enough, because shippers send a heartbeat
    each second. This hour is one of writing, because the time of a line may be wrong. It ends with the last file before
    them, however old that is. The dates leave out old rows that were packed into new files since.
    """
    actions = delta_table(settings, REQUESTS.name).files()
    columns = ("path", "modification_time", "partition.event_date")
    files = list(zip(*(actions.column(name) for name in columns), strict=True))
    own = set(paths or ())
    before = [each for each in files if each[0] not in own]
    written_ms = max((ms for _, ms, _ in before), default=0)
    dates = sorted({date for _, _, date in before})[-2:]
    found = [path for path, ms, date in before if ms >= written_ms - _AROUND_MS and date in dates]
    return [*found, *own]


def _spans(covered: list[Covered]) -> Iterator[_Missing]:
    """Offsets that consecutive micro-batches covered, joined, and the places where a partition was recreated."""
    by_place = sorted(covered, key=lambda each: (each.topic, each.partition))
    for _, group in groupby(by_place, key=lambda each: (each.topic, each.partition)):
        span: Covered | None = None
        for each in group:
            if each.end is not None and each.end >= each.start:
                # A micro-batch continues where the one before ended.
                span = each if span is None else span._replace(end=each.end, at_ms=each.at_ms)
                continue
            if span is not None:
                yield _Missing(span, is_recreated=False)
                span = None
            yield _Missing(each, is_recreated=True)
        if span is not None:
            yield _Missing(span, is_recreated=False)


def _expired(settings: Settings, spans: list[Covered], paths: Sequence[str] | None) -> Iterator[_Missing]:
    """The offsets without a line that Kafka no longer has.

    An offset that Kafka has but delivers to no consumer is a marker: the end of a transaction takes an offset.
    """
    read = [each for each in spans if each.end != each.start]
    without = list(_without_a_line(settings, read, paths))
    begins = first_offsets(settings, {each[:2] for each in without}) if without else {}
    for each in without:
        end = min(each.end or 0, begins.get(each[:2], each.end or 0))
        if each.start < end:
            yield _Missing(each._replace(end=end), is_recreated=False)


def _without_a_line(
    settings: Settings, spans: list[Covered], paths: Sequence[str] | None
) -> Iterator[Covered]:
    if not spans or (paths is not None and not paths):
        return
    if paths is None:
        low, high = min(each.start for each in spans), max(each.end or 0 for each in spans)
        paths = paths_within(delta_table(settings, REQUESTS.name), "kafka_offset", low, high)
    with Tables(settings) as tables:
        tables.open_files(REQUESTS.name, paths)
        for each in spans:
            place = [settings.cluster_id, each.topic, each.partition, each.start, each.end]
            if tables.query(_ROWS, place).rows[0][0] != (each.end or 0) - each.start:
                for first, after in tables.query(_MISSING, place).rows:
                    yield each._replace(start=first, end=after)


def _around(settings: Settings, tables: Tables, covered: Covered) -> Loss:
    asked = [settings.cluster_id, covered.topic, covered.partition, covered.start, covered.end]
    brokers = tuple(
        (broker_id, before_ms or 0, max(covered.at_ms, before_ms) if after_ms is None else after_ms)
        for broker_id, before_ms, after_ms in tables.query(_AROUND, asked).rows
    )
    return Loss(covered, EXPIRED_UNREAD, brokers)


def _recreated(settings: Settings, tables: Tables, covered: Covered) -> Loss:
    asked = [settings.cluster_id, covered.topic, covered.partition, covered.at_ms]
    brokers = tuple(
        (broker_id, before_ms, max(before_ms, covered.at_ms))
        for broker_id, before_ms in tables.query(_BEFORE, asked).rows
    )
    return Loss(covered, RECREATED, brokers)
