"""The rules of error budgets are the model's: their text by the constants, and their values by Prometheus itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import yaml
from deltalake import write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.model.budgets.objectives import BLIP_S, BURN_RULES, PAGING, WINDOWS_S, Objective
from kquota_spark.reports.budgets.grouping import Grouping
from kquota_spark.reports.budgets.owned_budgets import budgets_at
from kquota_spark.schema.tables import DECISIONS, USAGE
from kquota_spark.store.reading import Tables
from tests.support.chance import Chance
from tests.support.places import ROOT
from tests.support.programs.promtool import promtool
from tests.support.tables.table_rows import T0_MS, decision, usage

RULES = ROOT / "conf" / "prometheus-budgets.rules.yaml"
GROUPS = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
ALERTS = {
    "fast": "KquotaBudgetBurnsFast",
    "hours": "KquotaBudgetBurnsForHours",
    "days": "KquotaBudgetBurnsForDays",
}
SERIES = 1_000
T0_S = T0_MS // 1_000
STEP_S, END_S = 150, 74 * 3_600
"""Seconds between two scrapes, and the time of the last one, from T0 on."""


def window(length_s: int) -> str:
    return next(name for name, own_s in WINDOWS_S.items() if own_s == length_s)


def rules_of_the_model() -> dict[str, str]:
    """The recording rules by name, from the constants of the model; white space is one space."""
    burn = "increase(kquota_owner_throttled_seconds_total[{0}]) / increase(kquota_owner_active_seconds_total[{0}])"
    found = {
        f"owner:kquota_burn:rate{name}": f"{burn.format(name)} / kquota_owner_allowed_throttled_ratio"
        for name in WINDOWS_S
    }
    earlier = ""
    for rule in BURN_RULES:
        long, short = window(rule.long_s), window(rule.short_s)
        holds = (
            f"owner:kquota_burn:rate{long} >= {rule.factor:g} and owner:kquota_burn:rate{short} >= {rule.factor:g} "
            f"and increase(kquota_owner_throttled_seconds_total[{long}]) > {BLIP_S}"
        )
        found[f"owner:kquota_burn:{rule.name}"] = f"( {holds} ){earlier}" if earlier else holds
        earlier += f" unless owner:kquota_burn:{rule.name}"
    return found


def test_the_rules_have_the_windows_factors_and_blips_of_the_model() -> None:
    [recorded, alerts] = GROUPS
    assert {
        rule["record"]: " ".join(rule["expr"].split()) for rule in recorded["rules"]
    } == rules_of_the_model()
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in alerts["rules"]}
    assert [rule["alert"] for rule in alerts["rules"]] == [*ALERTS.values(), "KquotaBudgetSpent"]
    assert {pace for pace, alert in ALERTS.items() if severities[alert] == "page"} == set(PAGING)
    assert {rule["expr"] for rule in alerts["rules"][:3]} == {f"owner:kquota_burn:{pace}" for pace in ALERTS}


class Series(NamedTuple):
    """One owner: its allowed share, its seconds from T0 on, and whether its counters begin again once."""

    name: str
    percent: float
    active: list[int]
    throttles: list[tuple[int, int]]
    """Second and length in seconds."""
    reset_at: int | None

    def seconds(self) -> tuple[set[int], set[int]]:
        """The active and the throttled seconds."""
        throttled = {begin + place for begin, length in self.throttles for place in range(length)}
        return set(self.active) | throttled, throttled


def drawn(chance: Chance) -> list[Series]:
    """Owners with bursts that are recent or old, short or long, some of them idle for hours."""
    found = []
    for number in range(SERIES):
        active, throttles = list[int](), list[tuple[int, int]]()
        for _ in range(chance.randrange(5)):
            begin = END_S - round(10 ** chance.uniform(1.5, 5.4))
            begin = max(0, begin)
            active += [begin + chance.randrange(600) for _ in range(chance.choice((0, 20, 150)))]
            throttles.append((begin + chance.randrange(300), chance.choice((1, 20, 119, 121, 260, 700))))
        active = [second for second in active if second < END_S]
        throttles = [(begin, min(length, END_S - begin)) for begin, length in throttles if begin < END_S]
        reset_at = chance.randrange(1, END_S // STEP_S) if chance.random() < 0.3 else None
        found.append(Series(f"o{number}", chance.choice((94.0, 96.0, 99.0)), active, throttles, reset_at))
    return found


def write_tables(root: Path, series: list[Series]) -> None:
    """The seconds as rows of usage and decisions, far quicker than row by row."""
    used = [(one.name, second, 0) for one in series for second in one.active]
    held = [(one.name, begin, length * 1_000) for one in series for begin, length in one.throttles]
    for table, sample, rows in ((USAGE, usage(0), used), (DECISIONS, decision(0), held)):
        columns: dict[str, list[Any]] = {name: [sample.get(name)] * len(rows) for name in table.names}
        users, seconds = [row[0] for row in rows], [row[1] for row in rows]
        lengths: list[Any] = [row[2] for row in rows]
        columns["second"] = [(T0_S + second) * 1_000_000 for second in seconds]
        columns["user" if table is USAGE else "bucket_user"] = users
        if table is DECISIONS:
            columns["users"] = [[user] for user in users]
            columns |= dict.fromkeys(("observed_throttle_ms", "observed_total_throttle_ms"), lengths)
            columns["observed_throttled_requests"] = [1] * len(rows)
        schema = table.arrow_schema()
        arrays = [pa.array(columns[field.name], type=field.type) for field in pa.schema(schema)]
        data = pa.Table.from_arrays(arrays, schema=pa.schema(schema))
        write_deltalake(str(root / table.name), data, partition_by=list(table.partition_by))


def counter(seconds: set[int], reset_at: int | None) -> str:
    """A counter of the seconds at each scrape, in the notation of promtool; it begins again at a scrape."""
    ordered, steps, place, base = sorted(seconds), list[tuple[int, int]](), 0, 0
    for number in range(END_S // STEP_S + 1):
        if number == reset_at:
            base = place
        while place < len(ordered) and ordered[place] < number * STEP_S:
            place += 1
        value = place - base
        if steps and steps[-1][0] == value:
            steps[-1] = value, steps[-1][1] + 1
        else:
            steps.append((value, 1))
    return " ".join(f"{value}x{count - 1}" if count > 1 else f"{value}" for value, count in steps)


def input_series(series: list[Series]) -> Iterator[dict[str, str]]:
    for one in series:
        active, throttled = one.seconds()
        allowed_ratio = Objective(percent=one.percent).allowed_ratio
        scrapes = END_S // STEP_S
        for name, values in (
            ("active_seconds_total", counter(active, one.reset_at)),
            ("throttled_seconds_total", counter(throttled, one.reset_at)),
            ("allowed_throttled_ratio", f"{allowed_ratio!r}x{scrapes}"),
        ):
            yield {"series": f'kquota_owner_{name}{{owner="{one.name}"}}', "values": values}


def expected(root: Path, series: list[Series]) -> dict[str, dict[str, float]]:
    """The recorded series by rule and owner, as the tables have them."""
    objectives = {one.name: Objective(percent=one.percent) for one in series}
    grouping = Grouping(lambda user, _, __: user, objectives.__getitem__, 30 * 86_400)
    with Tables(Settings(tables=str(root), cluster_id="demo")) as tables:
        budgets = budgets_at(tables, "demo", T0_MS + END_S * 1_000, grouping).found
    found: dict[str, dict[str, float]] = {name: {} for name in rules_of_the_model()}
    for one in budgets:
        for name, rate in one.budget.burns.items():
            if rate is not None:
                found[f"owner:kquota_burn:rate{name}"][one.name] = rate
        if (rule := one.budget.burning) is not None:
            found[f"owner:kquota_burn:{rule.name}"][one.name] = one.budget.burns[window(rule.long_s)] or 0.0
    return found


def written(folder: Path, series: list[Series], found: Mapping[str, Mapping[str, float]]) -> Path:
    tests = [
        # Without an active second the rate is 0 / 0, which is above nothing; the tables have no rate then.
        {"expr": f"{rule} >= 0", "eval_time": f"{END_S}s",
         "exp_samples": [{"labels": f'{rule}{{owner="{name}"}}', "value": value} for name, value in values.items()]}
        for rule, values in found.items()
    ]  # fmt: skip
    case: dict[str, Any] = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{END_S // 2}s",
        "tests": [
            {"interval": f"{STEP_S}s", "input_series": [*input_series(series)], "promql_expr_test": tests}
        ],
    }
    path = folder / "random.test.yaml"
    path.write_text(yaml.dump(case, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)), encoding="utf-8")
    return path


def test_the_rules_have_the_burn_rates_and_paces_of_the_tables(tmp_path: Path, chance: Chance) -> None:
    series = drawn(chance)
    write_tables(tmp_path, series)
    found = expected(tmp_path, series)
    done = subprocess.run(
        [promtool(), "test", "rules", written(tmp_path, series, found)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[:4_000]
    counts = {name.rpartition(":")[2]: len(values) for name, values in found.items()}
    # Every pace and every window has owners, and many have no pace.
    assert min(counts.values()) >= 15, counts
    assert 300 < sum(counts[rule.name] for rule in BURN_RULES) < 700, counts


def test_a_difference_of_one_second_would_be_found(tmp_path: Path, chance: Chance) -> None:
    series = drawn(chance)[:20]
    write_tables(tmp_path, series)
    found = expected(tmp_path, series)
    second = END_S - 7
    changed = next(one for one in series if one.throttles and second not in one.seconds()[0])
    changed.throttles.append((second, 1))
    path = written(tmp_path, series, found)
    done = subprocess.run([promtool(), "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and f'owner="{changed.name}"' in done.stdout + done.stderr
