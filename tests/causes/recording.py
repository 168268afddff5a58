"""A recorded seed as the tables that the job would have written, and what `kquota why` makes of each bucket."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.causes import Attribution, attribute
from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.attribution.observed import Observed
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.process.clock import now_ms
from kquota_spark.replay.files import Replay, replay_files
from kquota_spark.replay.log_lines import log_lines
from kquota_spark.replay.rows import decision_rows, usage_rows
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.before import Before
from kquota_spark.reports.why.positions import Positions, positions_of_lines
from kquota_spark.reports.why.recorded import Wanted, recorded
from kquota_spark.schema.tables import DECISIONS, USAGE
from kquota_spark.store.reading import Tables
from kquota_spark.store.rows import arrow_rows
from kquota_spark.store.rules_tables import RulesTables
from tests.causes.run import RUN_FILE
from tests.support.tables.table_rows import write_table

_CLUSTER = "causes"
KNOWN_BEFORE_MS = 60_000
"""A scaled threshold: a run has no ten minutes before a client is first seen."""
_SET_BEFORE_MS = 3_600_000
"""How long the first limit counts as set before it was: the user had sent nothing, so no replay needs it earlier."""
_TYPES = {
    QuotaKey.PRODUCER_BYTE_RATE: QuotaType.PRODUCE,
    QuotaKey.CONSUMER_BYTE_RATE: QuotaType.FETCH,
    QuotaKey.REQUEST_PERCENTAGE: QuotaType.REQUEST,
}


class Answer(NamedTuple):
    """One bucket: what was made, and what was found."""

    seed: int
    label: str
    cause: Cause | None
    """None if nobody is to be blamed."""
    attribution: Attribution | None
    """None if nothing was throttled."""
    observed: Observed | None

    @property
    def named(self) -> list[Cause]:
        """The named causes in order; steady at the limit if there are none."""
        if self.attribution is None or self.attribution.main is None:
            return []
        return [part.cause for part in self.attribution.named] or [Cause.STEADY]

    @property
    def is_blameless(self) -> bool:
        """Whether no cause is named."""
        return self.attribution is None or not self.attribution.named


def answers(folder: Path, root: Path, *, has_lines: bool = True) -> list[Answer]:
    """The causes of all buckets of a recording.

    Args:
        folder: of `record_seed`.
        root: an empty folder for tables.
        has_lines: whether the log lines can be read again, as from the topic.
    """
    run = json.loads((folder / RUN_FILE).read_text())
    logs = sorted(folder.glob("broker-*.log.gz"))
    files = [(int(path.name.split("-")[1].split(".")[0]), path) for path in logs]
    changes = [change for case in run["cases"] for change in _changes(case)]
    found = replay_files(files, RuleGovernor(RuleBook(rule_periods(changes))), RateConfig())
    _write(root, changes, found)
    positions = {
        key: value
        for broker_id, path in (files if has_lines else ())
        for key, value in positions_of_lines((broker_id, line) for line in log_lines(path)).items()
    }
    return _answers(run, found, Settings(cluster_id=_CLUSTER, tables=str(root)), positions)


def _changes(case: dict[str, Any]) -> list[QuotaChange]:
    key, before = QuotaKey(case["key"]), None
    changes: list[QuotaChange] = []
    for at_ms, value in case["changes"]:
        since_ms = at_ms if changes else at_ms - _SET_BEFORE_MS
        changes.append(QuotaChange(Entity(case["user"], None), key, value, before, since_ms, since_ms))
        before = value
    return changes


def _write(root: Path, changes: Sequence[QuotaChange], found: Replay) -> None:
    RulesTables(str(root), _CLUSTER, source="admin", apply_lag_ms=0).write_file(changes, now_ms())
    for table, rows in (
        (USAGE, usage_rows(_CLUSTER, found)),
        (DECISIONS, decision_rows(_CLUSTER, found, RateConfig().name)),
    ):
        write_table(root, table.name)
        write_deltalake(str(root / table.name), arrow_rows(table, rows), mode="append")


def _answers(run: dict[str, Any], found: Replay, settings: Settings, positions: Positions) -> list[Answer]:
    wanted = {case["label"]: _wanted(case, found) for case in run["cases"]}
    of_all = recorded(settings, [one for one in wanted.values() if one is not None])
    answers = []
    with Tables(settings) as tables:
        tables.open("usage")
        before = Before(settings, tables)
        for case in run["cases"]:
            cause = None if case["cause"] is None else Cause(case["cause"])
            one = wanted[case["label"]]
            if one is None or one not in of_all:
                answers.append(Answer(run["seed"], case["label"], cause, None, None))
                continue
            observed = before.observed(one, of_all[one], positions)
            observed = replace(observed, known_before_ms=KNOWN_BEFORE_MS)
            answers.append(Answer(run["seed"], case["label"], cause, attribute(observed), observed))
    return answers


def _wanted(case: dict[str, Any], found: Replay) -> Wanted | None:
    """The time in which brokers throttled a bucket, as `kquota why --whole` takes it; None without a throttle."""
    quota_type = _TYPES[QuotaKey(case["key"])]
    throttled = [
        decision
        for key, decisions in found.decisions.items()
        if key.quota_type is quota_type and key.bucket.user == case["user"]
        for decision in decisions
        if decision.observed_total_throttle_ms
    ]
    if not throttled:
        return None
    bucket = BucketName(quota_type.value, case["user"], "")
    end_ms = max(each.second_ms + 1_000 + each.observed_throttle_ms for each in throttled)
    return Wanted(bucket, min(each.second_ms for each in throttled), end_ms)
