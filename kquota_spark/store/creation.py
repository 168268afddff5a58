"""Creates the Delta tables of the audit as declared in `schema/`, and extends those of an older release."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.broker_tables import BROKER_CONFIGS, JMX_SAMPLES
from kquota_spark.schema.columns import SCHEMA_VERSION, VERSION_PROPERTY, Table
from kquota_spark.schema.gap_tables import LOG_GAPS
from kquota_spark.schema.quota_tables import QUOTA_RULES
from kquota_spark.schema.shadow_tables import SHADOW_DECISIONS
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE, VIOLATIONS
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.delta.table import StoredTable, as_stored
from kquota_spark.store.reading import query
from kquota_spark.store.rules_tables import open_rules_table
from kquota_spark.store.storage import delta_table, place_of, storage_options
from kquota_spark.store.table_log import set_log_properties

_WRITTEN_BY_THE_JOB: tuple[Table, ...] = (
    REQUESTS, USAGE, DECISIONS, VIOLATIONS, JMX_SAMPLES, BROKER_CONFIGS, LOG_GAPS
)  # fmt: skip
_FIRST_VERSION = 1
_PROPERTIES = {VIOLATIONS.name: {"delta.targetFileSize": "524288"}}
"""Delta properties by table: small files for `violations`, because a merge rewrites each file with an open episode.

Most files of some thousand rows soon hold only ended episodes. With one file per date, each micro-batch would
rewrite all episodes of the day.
"""


def create_tables(settings: Settings) -> None:
    """Create missing tables, and add missing columns to tables of an older release.

    Raises:
        UserError: a table cannot be created or extended, or a newer release made it.
    """
    for declared in _WRITTEN_BY_THE_JOB:
        create_table(settings, declared)
    if settings.quotas.shadow:
        create_table(settings, SHADOW_DECISIONS)
    # MEASURE reads the rules, even if no watcher of the quotas has run yet.
    open_rules_table(settings.tables, QUOTA_RULES, storage_options(settings))


def create_table(settings: Settings, declared: Table) -> None:
    """Create or extend one table; see `create_tables`."""
    path = place_of(settings.tables, declared.name)
    with delta_errors(f"table {declared.name} cannot be created at {path}"):
        table = StoredTable.created(
            path,
            declared.arrow_schema(),
            declared.log_properties | _properties(declared) | {VERSION_PROPERTY: str(SCHEMA_VERSION)},
            storage_options(settings),
            partition_by=declared.partition_by,
            name=declared.name,
            grain=declared.grain,
        )
        _extend(table, declared, path)
        table.flush()


def _extend(table: StoredTable, declared: Table, path: str) -> None:
    version = _version(table)
    if version > SCHEMA_VERSION:
        raise UserError(
            f"table {declared.name} at {path} was made by a newer release (schema {version}, this one writes "
            f"{SCHEMA_VERSION}): use that release, or give tables: another path"
        )
    # Both are converted through Delta's own types: Arrow has more than one name for the elements of a list.
    wanted, found = as_stored(declared.arrow_schema()), table.schema()
    if not _is_within(pa.struct(found), pa.struct(wanted)):
        raise UserError(
            f"table {declared.name} at {path} has other columns than this release writes: "
            "give tables: another path, or use the release that made it"
        )
    if not _is_within(pa.struct(wanted), pa.struct(found)):
        table.append(wanted.empty_table(), adds_columns=True)
    set_log_properties(table, declared)
    properties = _properties(declared)
    if not properties.items() <= table.properties.items():
        table.set_properties(properties)
    if version < SCHEMA_VERSION:
        # Last: if a start is cut off before this, the next one repeats it.
        table.set_properties({VERSION_PROPERTY: str(SCHEMA_VERSION)})


def _properties(declared: Table) -> dict[str, str]:
    """Properties for writing the files of a table; tables of an older release get them too."""
    skipped_by = {"delta.dataSkippingStatsColumns": ",".join(declared.skip_by)}
    return skipped_by | _PROPERTIES.get(declared.name, {})


def _is_within(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether the old type equals the new one, or lacks only some fields of its structs."""
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _is_within(old.value_type, new.value_type)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        names = {field.name for field in new}
        return all(
            field.name in names and _is_within(field.type, new.field(field.name).type) for field in old
        )
    return old == new


def _version(table: StoredTable) -> int:
    text = table.properties.get(VERSION_PROPERTY)
    return int(text) if text is not None and text.isdecimal() else _FIRST_VERSION


ARCHIVED = "file:"
"""Prefix of the topic in rows that `kquota backfill` read from a file."""
_FROM_KAFKA = "select 1 from requests where cluster_id = ? and topic not like 'file:%' limit 1"


def has_rows(settings: Settings, name: str, source: str | None = None) -> bool:
    """Whether a table holds rows of this cluster that the job could write twice; rows of archived files do not count.

    If `source` is `log` or `jmx`, only its rows count: two queries write some of the tables.
    """
    table = delta_table(settings, name)
    if not table.paths():
        return False
    if name == REQUESTS.name:
        return bool(query(settings, [name], _FROM_KAFKA, [settings.cluster_id]).rows)
    is_meant = pc.field("cluster_id") == settings.cluster_id
    if source is not None:
        is_of_source = pc.field("source") == source
        # A release without JMX wrote no source.
        is_meant &= is_of_source | pc.field("source").is_null() if source == "log" else is_of_source
    rows = table.dataset().scanner(columns=["cluster_id"], filter=is_meant)
    return bool(rows.head(1).num_rows)
