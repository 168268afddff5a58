"""`python -m tests.closed_loop_pairs.edits --seed N`: real edits of quotas on a real broker, predicted and measured.

Twelve obeying clients run at the same time. Each gets a limit, and then another one by a real edit. The log becomes
tables, and `kquota impact` compares its prediction with what the broker did. It takes three minutes.

The edit comes a minute and twice 12 s after the first limit: so the windows are full before the prediction settles.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice, product
from pathlib import Path
from statistics import median

from deltalake import write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.embedded.admin import alter_quota
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.formats.text.person_units import person_ms, person_rate
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.process.clock import now_ms
from kquota_spark.replay.files import replay_files
from kquota_spark.replay.rows import decision_rows, usage_rows
from kquota_spark.reports.impact.edit_impact import SETTLE_MS, Impact, Impacts
from kquota_spark.schema.tables import DECISIONS, USAGE
from kquota_spark.store.rows import arrow_rows
from kquota_spark.store.rules_tables import RulesTables
from tests.closed_loop_pairs.plan import Behaviour, Pair, drawn_pair
from tests.closed_loop_pairs.run import Sender, prepared_cluster, seeded_options
from tests.support.chance import Chance
from tests.support.tables.table_rows import write_table

EDITS, SECONDS = 12, 60
"""Edits, and the length of the time before and after each (s)."""
_SETTLES_S = 1.0
_LINE = "{:>2}  {:<5}  {:>5}  {:>9} -> {:>9}  {:>8}  {:>9}  {:<23}  {:>8}  {:>7}  {:<6}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the clients and the edits, and print the table."""
    options = seeded_options("python -m tests.closed_loop_pairs.edits", __doc__, "edits", EDITS)
    options.add_argument("--seconds", type=int, default=SECONDS, metavar="S", help=f"default: {SECONDS}")
    options.add_argument("--keep", type=Path, metavar="DIR", help="write the tables here, for kquota impact")
    options.add_argument("--tables", type=Path, metavar="DIR", help="compare kept tables, without a broker")
    chosen = options.parse_args(arguments)
    chance = Chance(chosen.seed)
    kinds = islice(cycle(product((1, 10), (True, False))), chosen.edits)
    pairs = [drawn_pair(chance, number, Behaviour.OBEYING, *kind) for number, kind in enumerate(kinds, 1)]
    if chosen.tables is not None:
        _print(pairs, _impacts(chosen.tables))
        return 0
    with tempfile.TemporaryDirectory(prefix="kquota-edits-") as directory:
        with prepared_cluster(Path(directory)) as cluster:
            changes = _run(cluster, pairs, chosen.seconds)
        tables = chosen.keep or Path(directory) / "tables"
        _write_tables(cluster.brokers[0].request_log, changes, tables)
        _print(pairs, _impacts(tables))
    return 0


def _run(cluster: Cluster, pairs: Sequence[Pair], seconds: int) -> list[QuotaChange]:
    """Run all clients over the edits of all; the edits with the times at which the broker had answered."""
    changes = [_altered(cluster, pair, None, pair.limit_a) for pair in pairs]
    time.sleep(_SETTLES_S)
    settle_s = SETTLE_MS / 1_000
    port, length_s = cluster.brokers[0].port, 2 * seconds + 3 * settle_s + 5
    begin = threading.Barrier(sum(pair.connections for pair in pairs) + 1)
    with ThreadPoolExecutor(begin.parties) as pool:
        futures = [
            pool.submit(Sender(port, pair, "a", number, begin, length_s).run)
            for pair in pairs
            for number in range(pair.connections)
        ]
        begin.wait()
        time.sleep(seconds + 2 * settle_s)
        changes += [_altered(cluster, pair, pair.limit_a, pair.limit_b) for pair in pairs]
        for future in futures:
            future.result()
    return changes


def _altered(cluster: Cluster, pair: Pair, before: int | None, after: int) -> QuotaChange:
    alter_quota(cluster, {"producer_byte_rate": float(after)}, client_id=pair.client_id("a"))
    at_ms = now_ms()
    entity, previous = Entity(None, pair.client_id("a")), None if before is None else float(before)
    return QuotaChange(entity, QuotaKey.PRODUCER_BYTE_RATE, float(after), previous, at_ms, at_ms)


def _write_tables(log: Path, changes: Sequence[QuotaChange], root: Path) -> None:
    """Write the tables that the job would have written of the log."""
    RulesTables(str(root), "edits", source="admin", apply_lag_ms=0).write_file(changes, now_ms())
    found = replay_files([(1, log)], RuleGovernor(RuleBook(rule_periods(changes))), RateConfig())
    for table, rows in (
        (USAGE, usage_rows("edits", found)),
        (DECISIONS, decision_rows("edits", found, RateConfig().name)),
    ):
        write_table(root, table.name)
        write_deltalake(str(root / table.name), arrow_rows(table, rows), mode="append")


def _impacts(root: Path) -> list[Impact]:
    """The impact of each edit."""
    impacts = Impacts(Settings(cluster_id="edits", tables=str(root)))
    of_edits = [impacts.of(edit) for edit in impacts.edits if edit.before is not None]
    return [each for each in of_edits if each is not None]


def _print(pairs: Sequence[Pair], found: Sequence[Impact]) -> None:
    print(
        _LINE.format(
            "",
            "paced",
            "conns",
            "limit",
            "edit",
            "before",
            "predicted",
            "bound",
            "measured",
            "error",
            "inside",
        )
    )
    by_name = {pair.client_id("a"): pair for pair in pairs}
    for each in found:
        pair = by_name[str(each.edit.entity.client_id)]
        high = "-" if each.high_ms is None else person_ms(each.high_ms)
        error = "-" if each.error_percent is None else f"{each.error_percent:+.0f} %"
        print(
            _LINE.format(
                pair.number, "think" if pair.does_think else "clock", pair.connections, person_rate(pair.limit_a),
                person_rate(pair.limit_b), person_ms(each.before_ms), person_ms(each.predicted_ms),
                f"{person_ms(each.low_ms)} to {high}", person_ms(each.measured_ms), error,
                "yes" if each.is_within else "NO",
            )
        )  # fmt: skip
    errors = sorted(abs(each.error_percent) for each in found if each.error_percent is not None)
    shown = f"median error {median(errors):.1f} %, most {errors[-1]:.1f} %; " if errors else ""
    print(f"{len(found)} edits: {shown}inside the bound: {sum(each.is_within for each in found)}")


if __name__ == "__main__":
    sys.exit(main())
