"""Rules and board ask only for what a real scrape of the exporter has, and the alerts do as they say."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kquota_spark.reports.exported.metrics import METRICS
from tests.support.places import ROOT
from tests.support.programs.exposition_format import parsed_exposition
from tests.support.programs.promql_names import asked, labels_asked_wrongly
from tests.support.programs.promtool import promtool
from tests.support.reports.exported import Exporter
from tests.support.tables.table_rows import T0_MS, decision, request, source, usage, violation, write_table

RULES = ROOT / "conf" / "prometheus-quotas.rules.yaml"
SLO = ROOT / "conf" / "prometheus-slo.rules.yaml"
BUDGETS = ROOT / "conf" / "prometheus-budgets.rules.yaml"
ALL_RULES = sorted((ROOT / "conf").glob("*.rules.yaml"))
RUNBOOK = (ROOT / "kquota_spark" / "docs" / "runbook.md").read_text(encoding="utf-8")
RUNBOOK_URL = "https://docs.example.com/kquota/runbook.md#"
BOARD = json.loads((ROOT / "conf" / "grafana" / "kquota.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "kquota_spark" / "docs" / "dashboards.md").read_text(encoding="utf-8")
CASES = sorted((ROOT / "tests" / "data" / "prometheus").glob("*.test.yaml"))


def _rules(*files: Path) -> list[dict[str, Any]]:
    groups = [
        group
        for path in files or (RULES, BUDGETS)
        for group in yaml.safe_load(path.read_text("utf-8"))["groups"]
    ]
    return [rule for group in groups for rule in group["rules"]]


def _alerts() -> list[dict[str, Any]]:
    return [rule for rule in _rules(*ALL_RULES) if "alert" in rule]


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables that have something to say about everything."""
    root = tmp_path_factory.mktemp("tables")
    write_table(root, "requests", request(0, T0_MS + 1_000))
    write_table(root, "violations", violation(0, None))
    write_table(root, "quota_rules", source(9))
    write_table(root, "usage", usage(1))
    (root / "owners.yaml").write_text("owners: [{name: payments, users: [alice]}]\n", encoding="utf-8")
    exporter = Exporter(root, max_series=8, owners=str(root / "owners.yaml"))
    tagged = {"bucket_tags": '{"group": "pay"}', "bucket_user": "carol", "bucket_client_id": "c"}
    types = [
        decision(1, quota_type=quota_type, bucket_client_id="etl", quota_used_percent=90.0, source=told,
                 bucket_tags=None if quota_type in ("produce", "fetch") else '{"group": "pay"}')
        for quota_type, told in (
            ("produce", "log"), ("fetch", "log"), ("request", "log"), ("controller_mutation", "log"),
            ("connection", "jmx"),
        )
    ]  # fmt: skip
    rest = [decision(1, bucket_user=f"u{number}", quota_used_percent=1.0) for number in range(9)]
    exporter.judged(5, *types, decision(1, **tagged, quota_used_percent=99.0), *rest)
    exporter.judged(10, *rest)
    return exporter.text(10)


@pytest.fixture(scope="module")
def labels(scrape: str) -> dict[str, set[str]]:
    """Labels by metric: those of the scrape, then those that recorded ones take over from what they are made of."""
    found = {
        name: {label for sample in samples for label, _ in sample}
        for name, samples in parsed_exposition(scrape).items()
    }
    found["up"] = set()
    found["kquota:slo_bucket:info"] = {"user", "client_id", "tags"}
    for rule in _rules():
        if "record" in rule:
            parts = asked(rule["expr"])
            taken = {label for name in parts.metrics for label in found[name]}
            is_by = " by (" in rule["expr"]
            found[rule["record"]] = parts.grouped if is_by else taken - parts.grouped
    return found


def test_every_declared_metric_is_in_the_scrape_with_its_labels(scrape: str) -> None:
    found = parsed_exposition(scrape)
    assert set(found) == {f"kquota_{metric.name}" for metric in METRICS}
    for metric in METRICS:
        given = {label for sample in found[f"kquota_{metric.name}"] for label, _ in sample}
        assert given <= set(metric.labels), metric.name


def test_promtool_finds_nothing_to_say_about_the_scrape(scrape: str) -> None:
    done = subprocess.run(
        [promtool(), "check", "metrics"], input=scrape, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_lists_every_metric_as_it_is_declared() -> None:
    listed = re.findall(r"^\| `(kquota_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", PAGE, re.MULTILINE)
    assert [(name, kind, told.strip(), about.strip()) for name, kind, told, about in listed] == [
        (f"kquota_{metric.name}", metric.kind, ", ".join(metric.labels), metric.about) for metric in METRICS
    ]


def test_the_rules_ask_for_metrics_and_labels_that_are_there(labels: dict[str, set[str]]) -> None:
    rules = _rules()
    assert len(rules) == 39
    assert {
        rule["expr"]: wrong for rule in rules if (wrong := labels_asked_wrongly(rule["expr"], labels))
    } == {}


def test_every_alert_names_only_labels_that_it_has(labels: dict[str, set[str]]) -> None:
    for rule in (rule for rule in _rules() if "alert" in rule):
        texts: Any = rule["annotations"]
        known = {label for name in asked(rule["expr"]).metrics for label in labels[name]} | {"instance"}
        assert set(re.findall(r"\$labels\.(\w+)", texts["summary"])) <= known, rule["alert"]


def test_every_alert_has_a_severity_a_route_and_a_section_of_the_runbook() -> None:
    alerts = _alerts()
    assert len(alerts) == 20
    for alert in alerts:
        assert set(alert["labels"]) == {"severity", "route"}, alert["alert"]
        assert alert["labels"]["severity"] in ("page", "ticket", "info"), alert["alert"]
        assert alert["labels"]["route"] in ("operators", "tenant"), alert["alert"]
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}, alert["alert"]
    # The anchor of a heading: its words in small letters.
    anchors = {heading.lower() for heading in re.findall(r"^#+ (\w+)$", RUNBOOK, re.MULTILINE)}
    assert {alert["annotations"]["runbook_url"] for alert in alerts} <= {
        RUNBOOK_URL + anchor for anchor in anchors
    }
    for alert in alerts:
        assert alert["annotations"]["runbook_url"].endswith(f"#{alert['alert'].lower()}")
    told = set(re.findall(r"^#+ (Kquota\w+)$", RUNBOOK, re.MULTILINE))
    assert told == {alert["alert"] for alert in alerts}, "no section is of an alert that is gone"


def test_only_buckets_on_the_list_page() -> None:
    pages = [alert for alert in _alerts() if alert["labels"]["severity"] == "page"]
    of_owners = [
        rule["alert"] for rule in _rules(BUDGETS) if rule.get("labels", {}).get("severity") == "page"
    ]
    assert of_owners == ["KquotaBudgetBurnsFast", "KquotaBudgetBurnsForHours"]
    pages = [alert for alert in pages if alert["alert"] not in of_owners]
    assert [alert["alert"] for alert in pages] == ["KquotaThrottledNow", "KquotaThrottledForHours"]
    listed = " and on (user, client_id, tags) kquota:slo_bucket:info"
    assert [alert["alert"] for alert in pages if not alert["expr"].endswith(listed)] == []
    assert {rule["record"] for rule in _rules(SLO)} == {"kquota:slo_bucket:info"}
    assert {label for rule in _rules(SLO) for label in rule["labels"]} <= {"user", "client_id", "tags"}


def test_the_page_lists_every_alert_with_its_severity_and_route() -> None:
    rows = re.findall(r"^\| `(Kquota\w+)` \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    ours = [rule for rule in _rules() if "alert" in rule]
    assert rows == [(rule["alert"], rule["labels"]["severity"], rule["labels"]["route"]) for rule in ours]


def test_a_bucket_of_an_address_or_of_a_callback_is_named_by_its_tags() -> None:
    # Such a bucket has neither user nor client id: without its tags an alert or a legend would name nobody.
    texts: list[Any] = [rule["annotations"] for rule in _rules() if "alert" in rule]
    named = [text["summary"] for text in texts if "client_id" in text["summary"]]
    named += [target["legendFormat"] for panel in _panels() for target in panel["targets"]]
    named += [expression for _, expression in _expressions() if "by (user, client_id" in expression]
    named = [text for text in named if "client_id" in text]
    assert len(named) == 24  # 7 alerts, 14 legends, 3 panels with sums
    assert [text for text in named if "tags" not in text] == []


def test_promtool_takes_the_rules() -> None:
    done = subprocess.run(
        [promtool(), "check", "rules", *ALL_RULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(ALL_RULES) == 4


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_alerts_fire_at_their_thresholds_and_not_at_a_blip(case: Path) -> None:
    done = subprocess.run([promtool(), "test", "rules", case], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tried() -> None:
    tried = "\n".join(case.read_text(encoding="utf-8") for case in CASES)
    assert [alert["alert"] for alert in _alerts() if alert["alert"] not in tried] == []


def _placed() -> Iterator[dict[str, Any]]:
    """Rows and panels, with the panels that a collapsed row holds."""
    for panel in BOARD["panels"]:
        yield from (panel, *panel.get("panels", ()))


def _panels() -> Iterator[dict[str, Any]]:
    yield from (panel for panel in _placed() if panel["type"] != "row")


def _filled(expression: str) -> str:
    """An expression of the board with a number and times in the place of Grafana's variables of that kind."""
    return re.sub(r"\$__(interval|range|rate_interval)", "1m", expression.replace("$top", "10"))


def _expressions() -> Iterator[tuple[str, str]]:
    """What the panels, annotations and variables ask Prometheus for, and where."""
    for panel in _panels():
        for target in panel["targets"]:
            yield panel["title"], _filled(target["expr"])
    for annotation in BOARD["annotations"]["list"][1:]:
        yield annotation["name"], _filled(annotation["expr"])
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], re.sub(r"^label_values\((.*), \w+\)$", r"\1", variable["query"]["query"])


def test_the_board_asks_for_metrics_and_labels_that_are_there(labels: dict[str, set[str]]) -> None:
    found = {title: labels_asked_wrongly(expression, labels) for title, expression in _expressions()}
    assert len(found) > 25
    assert {title: wrong for title, wrong in found.items() if wrong} == {}
    for panel in _panels():
        for target in panel["targets"]:
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            known = {label for name in asked(_filled(target["expr"])).metrics for label in labels[name]}
            assert named <= known, panel["title"]
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            of_metric = re.fullmatch(r"label_values\((kquota_\w+).*, (\w+)\)", variable["query"]["query"])
            assert of_metric and of_metric[2] in labels[of_metric[1]], variable["name"]


def test_promtool_takes_every_expression_of_the_board(tmp_path: Path) -> None:
    rules = [
        {
            "record": f"board:{number}",
            "expr": expression.replace("$__rate_interval", "5m").replace("$__range", "3h"),
        }
        for number, (_, expression) in enumerate(_expressions())
    ]
    path = tmp_path / "board.rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run([promtool(), "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_panel_has_a_unit_a_description_an_id_of_its_own_and_the_source_that_is_chosen() -> None:
    assert [panel["title"] for panel in _panels() if not panel["fieldConfig"]["defaults"].get("unit")] == []
    assert [panel["title"] for panel in _panels() if not panel.get("description")] == []
    ids = [panel["id"] for panel in _placed()]
    assert len(set(ids)) == len(ids) > 25
    sources = [panel["datasource"]["uid"] for panel in _panels()]
    sources += [target["datasource"]["uid"] for panel in _panels() for target in panel["targets"]]
    assert set(sources) == {"${datasource}"}
    names = [variable["name"] for variable in BOARD["templating"]["list"]]
    assert names == ["datasource", "cluster", "broker", "type", "user", "client", "top"]
    used = set(re.findall(r"\$(?:{(\w+)}|([a-z]\w*))", json.dumps([*_panels()])))
    assert {one or other for one, other in used} == set(names)


def test_panels_of_buckets_draw_the_first_few_of_the_whole_range() -> None:
    """Without a bound a panel has a line per bucket; the first of each moment would come and go."""
    of_buckets = [
        (panel, target["expr"]) for panel in _panels() for target in panel["targets"]
        if "{{user}}" in target["legendFormat"]
    ]  # fmt: skip
    assert len(of_buckets) == 14
    assert [panel["title"] for panel, expression in of_buckets if "topk($top, " not in expression] == []
    over_time = [
        expression for panel, expression in of_buckets if panel["type"] in ("timeseries", "status-history")
    ]
    assert len(over_time) == 11
    assert [expression for expression in over_time if "[$__range] @ end()" not in expression] == []


def test_colours_of_the_time_throttled_follow_the_objective() -> None:
    throttled = {panel["title"]: panel for panel in _panels() if "ratio_rate" in panel["targets"][0]["expr"]
                 and "time_in_throttle" in panel["targets"][0]["expr"]}  # fmt: skip
    assert len(throttled) == 3
    for title, panel in throttled.items():
        assert all(
            "/ scalar(kquota:objective_time_in_throttle:ratio)" in target["expr"]
            for target in panel["targets"]
        )
        steps = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        assert steps in ([None, 1, 14.4], [None, 1, 6, 14.4]), title


def test_edits_of_limits_are_marked_where_they_happen() -> None:
    [_, edits] = BOARD["annotations"]["list"]
    # One step back, or an edit between two steps of a long range would be missed; 1 for every edit, that to 0 too.
    limit = edits["expr"].removeprefix("(").partition(" != bool ")[0]
    assert edits["expr"] == f"({limit} != bool {limit} offset $__interval) > 0"
    assert limit.startswith("cluster:kquota_bucket_limit:max{") and edits["enable"] is True
    assert edits["target"]["expr"] == edits["expr"], "Grafana reads one or the other, by its version"
    assert edits["datasource"]["uid"] == "${datasource}"


def test_no_panel_lies_on_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in _placed():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_figures_of_the_exporter_itself_are_in_a_collapsed_row_at_the_end() -> None:
    *clients, row = BOARD["panels"]
    assert (row["type"], row["title"], row["collapsed"]) == ("row", "Exporter", True)
    of_exporter = [panel for panel in _panels() if "kquota_exporter_" in panel["targets"][0]["expr"]]
    assert len(of_exporter) == 6
    assert of_exporter == row["panels"]
    # Grafana shows panels below an open row from the list of the board, not from the row.
    assert [panel["title"] for panel in clients if panel["type"] == "row" and panel["panels"]] == []


def test_the_limit_is_a_dashed_step_line() -> None:
    beside = [panel for panel in _panels() if "rate and limit" in panel["title"]]
    assert len(beside) == 4
    for panel in beside:
        [override] = panel["fieldConfig"]["overrides"]
        drawn = {one["id"]: one["value"] for one in override["properties"]}
        assert (
            drawn["custom.lineInterpolation"] == "stepAfter" and drawn["custom.lineStyle"]["fill"] == "dash"
        )
        assert all(re.match(override["matcher"]["options"], target["legendFormat"])
                   for target in panel["targets"] if "_limit_" in target["expr"])  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ('sum by (user) (rate(a_total{broker_id="1"}[5m])) > 0', []),
        ('sum by (owner) (a_total{user=~"x|y"})', ["no label owner to group by"]),
        ('a_total{topic="t"} / on (user) b', ["no metric b", "no label topic in a_total"]),
        ('a_total{user="}) b{"} # c', []),
        ("a_total != a_total offset 1m", []),
    ],
)
def test_what_is_not_there_is_found(expression: str, wrong: list[str]) -> None:
    assert labels_asked_wrongly(expression, {"a_total": {"user", "broker_id"}}) == wrong
