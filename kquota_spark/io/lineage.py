"""A query whose checkpoint is lost goes on under a new lineage: what its table holds already is left out.

Spark numbers the micro-batches of a new checkpoint from 0 again; Delta knows them by the checkpoint's own id, so
none is taken for one of before. The overlap is removed by the place of the events: INGEST starts behind the newest
offset that `requests` has of each partition. The others read their source again, from a little before on, and let
through only seconds behind the newest one that their table has; JUDGE warms its rings up with what it does not let
through, and violations are made anew.

What was in flight when the checkpoint was lost is exact under two conditions: the commits of the source are still
in its log with their files (`maintain.file_retention`), and no bucket was in use without a pause for a day.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING

from pyarrow import fs

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.checkpoints import SOURCES, TARGETS
from kquota_spark.io.delta_commits import newest_ms_of
from kquota_spark.io.delta_tables import has_rows
from kquota_spark.io.tables import query
from kquota_spark.io.whole_checkpoint import require_whole
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE
from kquota_spark.schema.version import STATE_FORMS
from kquota_spark.store.storage import delta_table, file_system

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
_OFFSETS = """
select topic, "partition", max(kafka_offset) + 1 from requests
where cluster_id = ? and topic not like 'file:%' group by all order by all
"""
_NEWEST = """
select broker_id, epoch_ms(max(second)) from {table} where cluster_id = ? and coalesce(source, 'log') = ?
group by all order by all
"""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a query begins.

    `offsets` for INGEST, by topic and partition. For the others the version of the source table, and the newest
    second (epoch ms) by broker that their own table holds from the log.
    """

    version: int = 0
    through_ms: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    state_form: int = 1
    """See `schema.version.STATE_FORMS`; a checkpoint of release 0.1 has no lineage, and this form."""

    def only_beyond(self, rows: DataFrame) -> DataFrame:
        """Rows with a second that the table does not have yet."""
        return rows.where(f"unix_millis(second) > {_bound(self.through_ms)}") if self.through_ms else rows

    @property
    def newest_ms(self) -> int:
        """The newest second of all brokers; -1 for none."""
        return max(self.through_ms.values(), default=-1)


def _bound(through_ms: Mapping[str, int]) -> str:
    known = " ".join(f"WHEN {int(broker)} THEN {through}" for broker, through in through_ms.items())
    return f"CASE broker_id {known} ELSE -1 END" if known else "-1"


_NAMES = [one.name for one in fields(Lineage)]


def stored_lineage(settings: Settings, hop: str) -> Lineage:
    """The lineage of a query; that of an ordinary checkpoint begins with the source.

    Raises:
        UserError: the file is damaged.
    """
    path = _path(settings, hop)
    try:
        files, place = file_system(settings, path)
        with files.open_input_stream(place) as stream:
            found = json.loads(stream.read())
            return Lineage(**{name: found[name] for name in _NAMES if name in found})
    except FileNotFoundError:
        return Lineage()
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: cannot be read: {str(error).partition(chr(10))[0]}") from error


def require_lineage(settings: Settings, hops: Sequence[str], *, is_new: bool) -> list[str]:
    """Check every query's checkpoint; with `is_new`, note for those that lost theirs where they begin.

    Returns:
        Queries that begin anew.

    Raises:
        UserError: a checkpoint is damaged or foreign, or missing while its table has rows.
    """
    begun = []
    for hop in hops:
        target, is_jmx = TARGETS[hop], hop.endswith("_jmx")
        source = ("jmx" if is_jmx else "log") if target in (USAGE.name, DECISIONS.name) else None
        if require_whole(settings, hop):
            _require_form(settings, hop)
            continue
        if not has_rows(settings, target, source):
            # The table was begun anew as well: nothing of before is to be left out.
            _store(settings, hop, Lineage())
            continue
        if is_jmx:
            raise UserError(
                f"checkpoint {settings.checkpoints}/{hop} is missing, but table {target} has rows from JMX that would "
                "be written twice: restore the checkpoint, or give tables: and checkpoints: new paths"
            )
        if not is_new:
            raise UserError(
                f"checkpoint {settings.checkpoints}/{hop} is missing, but table {target} has rows that would be "
                "written twice: restore the checkpoint, or start with --new-lineage, which goes on behind them"
            )
        _store(settings, hop, _lineage(settings, hop))
        begun.append(hop)
    return begun


def _require_form(settings: Settings, hop: str) -> None:
    found, form = stored_lineage(settings, hop).state_form, STATE_FORMS.get(hop, 1)
    if found != form:
        raise UserError(
            f"checkpoint {settings.checkpoints}/{hop}: another release wrote its state (form {found}, this one reads "
            f"{form}): move it away and start with --new-lineage, or use that release"
        )


def _lineage(settings: Settings, hop: str) -> Lineage:
    if hop == "ingest":
        offsets: dict[str, dict[str, int]] = {}
        for topic, partition, offset in query(
            settings, [REQUESTS.name], _OFFSETS, [settings.cluster_id]
        ).rows:
            offsets.setdefault(topic, {})[str(partition)] = offset
        return Lineage(
            offsets={
                topic: offsets[topic] for topic in settings.kafka.log_topics(offsets) if topic in offsets
            }
        )
    name = USAGE.name if hop == "measure" else DECISIONS.name
    through_ms = _newest_seconds(settings, name, "log")
    if hop == "measure":
        # One watermark closes the seconds of all brokers.
        through_ms = dict.fromkeys(through_ms, max(through_ms.values(), default=-1))
    newest_ms = max(through_ms.values(), default=-1)
    since_ms = newest_ms - (_DAY_MS if hop == "judge" else _HOUR_MS)
    return Lineage(_first_version(settings, SOURCES[hop], since_ms), through_ms)


def _newest_seconds(settings: Settings, name: str, source: str) -> dict[str, int]:
    rows = query(settings, [name], _NEWEST.format(table=name), [settings.cluster_id, source]).rows
    return {str(broker): int(second_ms) for broker, second_ms in rows}


def _first_version(settings: Settings, name: str, since_ms: int) -> int:
    """The first of the commits that hold rows from a time on; commits are about in the order of their rows."""
    column = "record_time_ms" if name == REQUESTS.name else "second"
    first = delta_table(settings, name).version()
    for version, newest_ms in _commits(settings, name, column):
        if newest_ms is not None and newest_ms < since_ms:
            break
        first = version
    return first


def _commits(settings: Settings, name: str, column: str) -> Iterator[tuple[int, int | None]]:
    """Commits of a table that added rows, newest first, with the newest time in each; None if it does not say."""
    files, path = file_system(settings, f"{settings.tables.rstrip('/')}/{name}/_delta_log")
    names = [info.base_name for info in files.get_file_info(fs.FileSelector(path))]
    versions = sorted(
        (int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit()), reverse=True
    )
    for version in versions:
        with files.open_input_stream(f"{path}/{version:020}.json") as stream:
            actions = [json.loads(line) for line in stream.read().splitlines()]
        added = [action["add"] for action in actions if "add" in action and action["add"]["dataChange"]]
        if added:
            times = [newest_ms_of(add, column) for add in added]
            known = [time_ms for time_ms in times if time_ms is not None]
            yield version, max(known) if len(known) == len(times) else None


def _path(settings: Settings, hop: str) -> str:
    return f"{settings.checkpoints.rstrip('/')}/{hop}.lineage.json"


def _store(settings: Settings, hop: str, lineage: Lineage) -> None:
    files, place = file_system(settings, _path(settings, hop))
    files.create_dir(place.rpartition("/")[0], recursive=True)
    with files.open_output_stream(place) as stream:
        stated = replace(lineage, state_form=STATE_FORMS.get(hop, 1))
        stream.write(json.dumps(asdict(stated)).encode())
