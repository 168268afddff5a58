"""Creates the Delta tables of the audit as declared in `schema/`, before the first query starts."""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.rules_tables import open_rules_table
from kquota_spark.schema.columns import Table
from kquota_spark.schema.quota_tables import QUOTA_RULES
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE, VIOLATIONS

_WRITTEN_BY_THE_JOB: tuple[Table, ...] = (REQUESTS, USAGE, DECISIONS, VIOLATIONS)


def create_tables(settings: Settings) -> None:
    """Create what is missing; tables that are there stay as they are.

    Raises:
        UserError: a table cannot be created or has another schema than this release writes.
    """
    for declared in _WRITTEN_BY_THE_JOB:
        path = f"{settings.tables.rstrip('/')}/{declared.name}"
        try:
            table = DeltaTable.create(
                path,
                schema=declared.arrow_schema(),
                mode="ignore",
                partition_by=list(declared.partition_by),
                name=declared.name,
                description=declared.grain,
                configuration={
                    "delta.checkpointInterval": "100",
                    "delta.dataSkippingStatsColumns": ",".join(declared.skip_by),
                },
            )
        except (DeltaError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"table {declared.name} cannot be created at {path}: {reason}") from error
        found = [field.name for field in table.schema().fields]
        if found != declared.names:
            raise UserError(
                f"table {declared.name} at {path} has other columns than this release writes: "
                "give tables: another path, or use the release that made it"
            )
    # MEASURE looks into the rules, also where nobody has watched the quotas yet.
    open_rules_table(settings.tables, QUOTA_RULES)


def has_rows(settings: Settings, name: str) -> bool:
    """Whether anything was ever written to a table."""
    return DeltaTable(f"{settings.tables.rstrip('/')}/{name}").version() > 0
