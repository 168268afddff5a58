"""Continues a query with a lost checkpoint under a new lineage, without the rows that its tables already hold.

Spark numbers the micro-batches of a new checkpoint from 0 again. Delta identifies them by the checkpoint's own id, so
none is confused with an earlier one. The overlap is removed by the offsets and times of the events. The query of the
log reads the topic again from `WARM_UP_MS` before the newest measured second, to warm up the rings. It leaves out
offsets that `requests` holds, and seconds that `usage` and `decisions` hold. Violations are computed again. The JMX
query continues after the newest offsets in `jmx_samples`.

Events in flight when the checkpoint was lost get exact results under two conditions. The topic still holds the time of
the warm-up, and no bucket was in use without a pause for that long.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.checkpoints.checkpoints import JMX, LOG, TARGETS, require_whole
from kquota_spark.checkpoints.notes import read_note, write_note
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.broker_tables import JMX_SAMPLES
from kquota_spark.schema.columns import STATE_FORM
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE
from kquota_spark.store.creation import has_rows
from kquota_spark.store.reading import query
from kquota_spark.store.storage import delta_table, place_of

_log = logging.getLogger(__name__)

WARM_UP_MS = 3_600_000
_OFFSETS = """
select topic, "partition", max(kafka_offset) + 1,
       coalesce(min(coalesce(first_offset, kafka_offset)) filter (record_time_ms >= $2), max(kafka_offset) + 1)
from requests where cluster_id = $1 and topic not like 'file:%' group by all order by all
"""
_NEWEST = """
select broker_id, epoch_ms(max(second)) from {table} where cluster_id = ? and source = 'log'
group by all order by all
"""
_JMX_OFFSETS = """
select topic, "partition", max(kafka_offset) + 1 from jmx_samples where cluster_id = $1 group by all order by all
"""

Offsets = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The start of a query, and the rows that its tables already hold of what it will read again.

    Attributes:
        offsets: offsets to start reading at; empty for the beginning of the topics.
        read_below: `requests` holds the lines below these offsets.
        measured_ms: the newest second of `usage`, epoch ms; -1 for none.
        decided_ms: the newest second of `decisions`, by broker, epoch ms.
        state_form: see `schema.columns.STATE_FORM`.
        tables: the id of the table `decisions` that the checkpoint belongs to; empty for any.
        state_shards: number of values into which the state is divided; 0 for a query without state.
    """

    offsets: Offsets = field(default_factory=dict)
    read_below: Offsets = field(default_factory=dict)
    measured_ms: int = -1
    decided_ms: Mapping[str, int] = field(default_factory=dict)
    state_form: int = STATE_FORM
    tables: str = ""
    state_shards: int = 0

    def only_unread(self, requests: pa.RecordBatch) -> pa.RecordBatch:
        """The lines that `requests` does not hold yet."""
        if not self.read_below:
            return requests
        places = zip(
            *(requests[name].to_pylist() for name in ("topic", "partition", "kafka_offset")), strict=True
        )
        is_new = [
            offset >= self.read_below.get(topic, {}).get(str(partition), 0)
            for topic, partition, offset in places
        ]
        return requests.filter(pa.array(is_new, pa.bool_()))

    def only_unmeasured(self, usage: pa.RecordBatch) -> pa.RecordBatch:
        """The seconds that `usage` does not hold yet."""
        if self.measured_ms < 0:
            return usage
        return usage.filter(pc.greater(_in_ms(usage["second"]), pa.scalar(self.measured_ms)))

    def only_undecided(self, decisions: pa.RecordBatch) -> pa.RecordBatch:
        """The seconds that `decisions` does not hold yet."""
        if not self.decided_ms:
            return decisions
        through_ms = [self.decided_ms.get(str(broker), -1) for broker in decisions["broker_id"].to_pylist()]
        return decisions.filter(pc.greater(_in_ms(decisions["second"]), pa.array(through_ms, pa.int64())))


def _in_ms(seconds: Any) -> Any:
    return seconds.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())


def stored_lineage(settings: Settings, name: str = LOG) -> Lineage:
    """The lineage of a query; without a note, one that begins at the start of the source.

    A damaged note is replaced by a lineage from the present tables. That writes nothing twice, because committed rows
    are left out as before.

    Raises:
        UserError: the file cannot be read or written.
    """
    text = read_note(settings, _path(settings, name))
    if text is None:
        return Lineage()
    try:
        return msgspec.json.decode(text, type=Lineage)
    except msgspec.DecodeError:
        _log.warning("%s was damaged: rebuilt from the tables", _path(settings, name))
        return _begun(settings, name)


def require_lineage(settings: Settings, queries: Sequence[str], *, is_new: bool) -> list[str]:
    """Check every query's checkpoint, and write a new lineage for each query without one.

    If the tables of such a query have rows, its checkpoint is lost. It may then begin anew only with `is_new`.

    Returns:
        Queries that continue under a new lineage.

    Raises:
        UserError: a checkpoint is damaged or foreign, or it is missing while its tables have rows.
    """
    begun = []
    for name in queries:
        if require_whole(settings, name):
            _require_same(settings, name)
            continue
        filled = _filled(settings, name)
        if filled is not None and not is_new:
            raise UserError(_advice(settings, name, filled))
        _begun(settings, name)
        if filled is not None:
            begun.append(name)
    return begun


def _begun(settings: Settings, name: str) -> Lineage:
    """Write and return a new lineage; if the tables are empty as well, it leaves nothing out."""
    found = Lineage()
    if _filled(settings, name) is not None:
        found = _of_log(settings) if name == LOG else _of_jmx(settings)
    shards = settings.stream.state_shards if name == LOG else 0
    found = replace(found, tables=_tables_id(settings), state_shards=shards)
    write_note(settings, _path(settings, name), msgspec.json.encode(found))
    return found


def _filled(settings: Settings, name: str) -> str | None:
    """The first table of a query that has rows of its source."""
    for table in TARGETS[name]:
        source = {LOG: "log", JMX: "jmx"}[name] if table in (USAGE.name, DECISIONS.name) else None
        if has_rows(settings, table, source):
            return table
    return None


def _advice(settings: Settings, name: str, filled: str) -> str:
    where = f"checkpoint {place_of(settings.checkpoints, name)} is missing"
    return (
        f"{where}, but table {filled} has rows that would be written twice: restore the checkpoint, or start with "
        "--new-lineage, which continues behind them"
    )


def _require_same(settings: Settings, name: str) -> None:
    found, where = stored_lineage(settings, name), f"checkpoint {place_of(settings.checkpoints, name)}"
    if found.state_form != STATE_FORM:
        raise UserError(
            f"{where}: another release wrote its state (form {found.state_form}, this one reads {STATE_FORM}): move it "
            "away and start with --new-lineage, or use that release"
        )
    shards = settings.stream.state_shards
    if name == LOG and not found.state_shards:
        raise UserError(
            f"{where}: the note {_path(settings, name)} with the number of its shards is missing: restore it, or move "
            "the checkpoint away and start with --new-lineage"
        )
    if name == LOG and found.state_shards != shards:
        raise UserError(
            f"{where}: its state has {found.state_shards} shards, but stream.state_shards is {shards}: set the old "
            "number, or move it away and start with --new-lineage"
        )
    if found.tables not in ("", _tables_id(settings)):
        raise UserError(
            f"{where}: it belongs to other tables than {settings.tables}: restore it, or move it away and start with "
            "--new-lineage"
        )


def _tables_id(settings: Settings) -> str:
    return delta_table(settings, DECISIONS.name).table_id


def _of_jmx(settings: Settings) -> Lineage:
    """A lineage after the newest offset of each partition: each sample is judged by itself."""
    offsets: dict[str, dict[str, int]] = {}
    rows = query(settings, [JMX_SAMPLES.name], _JMX_OFFSETS, [settings.cluster_id]).rows
    for topic, partition, after_last in rows:
        if topic == settings.kafka.jmx_topic:
            offsets.setdefault(topic, {})[str(partition)] = after_last
    return Lineage(offsets)


def _of_log(settings: Settings) -> Lineage:
    measured_ms = max(_newest_seconds(settings, USAGE.name).values(), default=-1)
    offsets: dict[str, dict[str, int]] = {}
    read_below: dict[str, dict[str, int]] = {}
    asked = [settings.cluster_id, measured_ms - WARM_UP_MS]
    rows = query(settings, [REQUESTS.name], _OFFSETS, asked).rows
    wanted = settings.kafka.log_topics({row[0]: None for row in rows})
    for topic, partition, after_last, first in rows:
        if topic in wanted:
            read_below.setdefault(topic, {})[str(partition)] = after_last
            offsets.setdefault(topic, {})[str(partition)] = first
    return Lineage(offsets, read_below, measured_ms, _newest_seconds(settings, DECISIONS.name))


def _newest_seconds(settings: Settings, name: str) -> dict[str, int]:
    rows = query(settings, [name], _NEWEST.format(table=name), [settings.cluster_id]).rows
    return {str(broker): int(second_ms) for broker, second_ms in rows}


def _path(settings: Settings, name: str) -> str:
    return place_of(settings.checkpoints, f"{name}.lineage.json")
