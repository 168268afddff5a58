"""Tables of recorded log files, made without Spark: what the job would write of the same lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from kquota_spark.audit.violations.rebuild import rebuild_all_violations
from kquota_spark.config.governor import mutation_config, rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.replay.files import replay_files
from kquota_spark.replay.log_lines import log_lines
from kquota_spark.replay.rows import decision_rows, request_rows, usage_rows
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE
from kquota_spark.store.creation import create_tables
from kquota_spark.store.rows import arrow_rows
from kquota_spark.store.rules_tables import RulesTables
from kquota_spark.store.storage import delta_table

_SHIPPED_AFTER_MS = 5


def write_recorded(
    settings: Settings, logs: Sequence[tuple[int, Path]], changes: Sequence[QuotaChange], now_ms: int
) -> None:
    """Create the tables, and write all rows of a recording: requests, usage, decisions, violations and quotas.

    Args:
        settings: where the tables are, the cluster, the brokers' windows and time zone; no table is there yet.
        logs: broker id and path of each request log, plain or gzipped; all of it is held in memory.
        changes: the quotas over the whole time of the logs.
        now_ms: when the quotas were observed, epoch ms.

    Raises:
        UserError: a log cannot be read, or a table cannot be written.
    """
    cluster_id, zone, config = settings.cluster_id, settings.broker.log_time_zone, rate_config(settings)
    create_tables(settings)
    rules = RulesTables(settings.tables, cluster_id, source="file", apply_lag_ms=0)
    rules.write_file(changes, now_ms)
    governor = RuleGovernor(RuleBook(rule_periods(changes, apply_lag_ms=0)))
    of_mutations = mutation_config(settings)
    found = replay_files(logs, governor, config, zone, mutation_config=of_mutations)
    for broker_id, path in logs:
        _append(
            settings,
            REQUESTS.name,
            request_rows(cluster_id, broker_id, [*log_lines(path)], zone, _SHIPPED_AFTER_MS),
        )
    _append(settings, USAGE.name, arrow_rows(USAGE, usage_rows(cluster_id, found)))
    decisions = decision_rows(cluster_id, found, config.name, of_mutations)
    _append(settings, DECISIONS.name, arrow_rows(DECISIONS, decisions))
    rebuild_all_violations(settings)


def _append(settings: Settings, name: str, rows: pa.Table | pa.RecordBatch) -> None:
    delta_table(settings, name).append(rows)
