"""The table `shadow_decisions` that the job would have written of a capture, made without Spark by the same code."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from kquota_spark.pipeline.shadow.rules import ShadowPin
from kquota_spark.schema.shadow_tables import SHADOW_DECISIONS
from tests.support.logs.captures import Capture
from tests.support.pipeline.shadowed import Values, known, run_batches, usage_of
from tests.support.places import DATA
from tests.support.tables.table_rows import write_table


def write_shadow(settings: Settings, capture: Capture, values: Values, pin: ShadowPin) -> int:
    """Write the table beside those of `write_capture`; the number of rows.

    Args:
        settings: of those tables.
        capture: of tests/data.
        values: the shadow quotas.
        pin: their name and version.
    """
    quotas = DATA / capture.name / "quotas.yaml"
    enforced = RuleBook(rule_periods(read_quota_file(quotas), apply_lag_ms=capture.apply_lag_ms))
    rows = usage_of(DATA / capture.name, quotas, settings.cluster_id, apply_lag_ms=capture.apply_lag_ms)
    found = run_batches(rows, known(enforced, values, pin), 5).shadow
    root = Path(settings.tables)
    write_table(root, SHADOW_DECISIONS.name)
    table = pa.Table.from_pylist(found, schema=SHADOW_DECISIONS.arrow_schema())
    write_deltalake(str(root / SHADOW_DECISIONS.name), table, mode="append")
    return len(found)
