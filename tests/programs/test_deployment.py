"""What lies in conf/ for running the job: it parses, and names only metrics and options that exist."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from kquota_spark.audit.audit_metrics import AuditMetrics
from kquota_spark.audit.progress import Progress
from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Metrics, Settings
from kquota_spark.enforce.changes import Mode
from kquota_spark.enforcement.policies import load_policies
from tests.support.places import CONF
from tests.support.programs.exposition_format import parsed_exposition


def _progress() -> Progress:
    """A query that has something to say about everything."""
    progress = Progress(
        rows=10, batches=1, last_seen_s=5.0, watermark_s=4.0,
        counted={
            "rows": 9, "newest_ms": 4_500, "unreadable": 1, "out_of_time": 1, "late": 1, "rules_behind": 1,
            "judged_produce": 8, "agreeing_produce": 7, "judged_fetch": 0, "agreeing_fetch": 0,
        },
    )  # fmt: skip
    progress.end_offset = {"t": {"0": 1}}
    progress.latest_offset = {"t": {"0": 3}}
    return progress


def test_the_alerts_ask_for_metrics_that_the_job_has() -> None:
    metrics = AuditMetrics(Settings(cluster_id="c", metrics=Metrics(port=1)))
    metrics.update({"log": _progress()}, {"log": True})
    scraped = parsed_exposition(metrics.scrape())
    # It comes from the tables.
    known = set(scraped) | {"kquota_audit_quota_snapshot_age_seconds"}
    rules = yaml.safe_load((CONF / "prometheus-auditor.rules.yaml").read_text(encoding="utf-8"))
    alerts = rules["groups"][0]["rules"]
    assert [alert["alert"] for alert in alerts] == [
        "KquotaAuditDownOrLagging",
        "KquotaAuditUnreadableLines",
        "KquotaAuditFutureLines",
        "KquotaAuditAgreementDropped",
        "KquotaAuditQuotasStale",
    ]
    asked = {name for alert in alerts for name in re.findall(r"kquota_audit_\w+", alert["expr"])}
    assert asked - known == set()
    assert scraped["kquota_audit_input_lag_offsets"][(("cluster_id", "c"), ("query", "log"))] == 2.0
    # A quota type that was not judged is left out: no division of 0 by 0.
    assert scraped["kquota_audit_requests_agreeing_total"] == {
        (("cluster_id", "c"), ("quota_type", "produce")): 7.0
    }


def test_a_query_that_has_ended_stays_with_its_figures_and_is_not_active() -> None:
    metrics = AuditMetrics(Settings(cluster_id="c"))
    metrics.update({"log": _progress()}, {"log": True})
    metrics.update({"jmx": _progress()}, {"jmx": True})
    scraped = parsed_exposition(metrics.scrape())
    of = {query: (("cluster_id", "c"), ("query", query)) for query in ("log", "jmx")}
    assert scraped["kquota_audit_query_active"] == {of["log"]: 0.0, of["jmx"]: 1.0}
    assert scraped["kquota_audit_input_rows_total"] == {of["log"]: 10.0, of["jmx"]: 10.0}


ROOT = CONF.parent
COMMAND = re.compile(r"(jobs/\w+\.py|\bkquota)((?: [\w./-]+)+)")


def _options_of(program: list[str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, *program, "--help"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(re.findall(r"--[\w-]+", done.stdout))


def _command_lines() -> list[str]:
    """Every call of a job or of kquota in the files for deployment."""
    texts = [
        (CONF / name).read_text(encoding="utf-8")
        for name in (
            "crontab.example",
            *(
                f"systemd/kquota-{one}.service"
                for one in ("audit", "enforce", "exporter", "maintain", "notify", "serve")
            ),
        )
    ]
    manifests = [
        manifest
        for name in ("kquota-audit.yaml", "kquota-enforce.yaml", "kquota-exporter.yaml")
        for manifest in yaml.safe_load_all((CONF / "kubernetes" / name).read_text(encoding="utf-8"))
    ]
    for manifest in manifests:
        spec = manifest.get("spec", {})
        application = spec.get("template", spec)
        if "mainApplicationFile" in application:
            texts.append(" ".join([application["mainApplicationFile"], *application["arguments"]]))
        elif manifest["kind"] == "CronJob":
            [container] = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
            texts.append(" ".join(container["command"]))
        elif manifest["kind"] == "Deployment":
            [container] = spec["template"]["spec"]["containers"]
            texts.append(" ".join(container["command"]))
    lines = [line for text in texts for line in text.splitlines() if not line.startswith("#")]
    return [line for line in lines if COMMAND.search(line) and "--" in line]


def test_what_the_units_manifests_and_cron_lines_start_is_there_and_takes_their_arguments() -> None:
    lines = _command_lines()
    assert len(lines) == 16, lines
    known: dict[str, set[str]] = {}
    for line in lines:
        script, arguments = COMMAND.findall(line)[-1]
        words = arguments.split()
        named = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
        program = [script] if script.startswith("jobs/") else ["-m", "kquota_spark.cli.main", *named]
        if str(program) not in known:
            known[str(program)] = _options_of(program)
        assert {word for word in words if word.startswith("--")} <= known[str(program)], line


def test_the_settings_in_the_manifest_are_settings() -> None:
    [text] = [
        manifest["data"]["kquota.yaml"]
        for manifest in yaml.safe_load_all(
            (CONF / "kubernetes" / "kquota-audit.yaml").read_text(encoding="utf-8")
        )
        if manifest["kind"] == "ConfigMap"
    ]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "kquota.yaml"
        path.write_text(text, encoding="utf-8")
        assert load_settings(path).metrics == Metrics(port=9191, address="0.0.0.0")


def test_the_policies_in_the_manifest_are_policies_and_observe_only(tmp_path: Path) -> None:
    text = (CONF / "kubernetes" / "kquota-enforce.yaml").read_text(encoding="utf-8")
    [policy] = [m["data"]["policy.yaml"] for m in yaml.safe_load_all(text) if m["kind"] == "ConfigMap"]
    (tmp_path / "policy.yaml").write_text(policy, encoding="utf-8")
    assert load_policies(tmp_path / "policy.yaml").mode is Mode.OBSERVE


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in (CONF / "systemd").iterdir():
        # What it starts is not installed here, nor is its user.
        text = re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(encoding="utf-8"))
        (tmp_path / unit.name).write_text(text.replace("User=kquota\n", ""), encoding="utf-8")
    units = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if "kquota" in line] == []


def test_no_unit_listens_beyond_loopback_on_its_own_account() -> None:
    for unit in (CONF / "systemd").iterdir():
        assert "0.0.0.0" not in unit.read_text(encoding="utf-8"), unit.name


def test_nothing_asks_for_a_dump_of_the_heap() -> None:
    files = [path for path in CONF.rglob("*") if path.is_file()]
    assert len(files) > 20
    words = ("HeapDump", "CrashOnOutOfMemoryError", "CreateCoredumpOnCrash", "LimitCORE=infinity")
    found = [path.name for path in files for word in words if word in path.read_text(encoding="utf-8")]
    assert found == []


HARDENED = {"UMask=0027", "LimitCORE=0", "NoNewPrivileges=yes", "PrivateTmp=yes"}


def test_services_and_cron_write_for_their_group_only_and_get_no_more_rights() -> None:
    services = sorted((CONF / "systemd").glob("*.service"))
    assert len(services) == 6
    for unit in services:
        lines = unit.read_text(encoding="utf-8").splitlines()
        assert set(lines) >= HARDENED, unit.name
        strict = (
            "ProtectSystem=strict"
            if unit.stem in ("kquota-exporter", "kquota-serve")
            else "ProtectSystem=full"
        )
        assert strict in lines, unit.name
    entries = [
        line
        for line in (CONF / "crontab.example").read_text("utf-8").splitlines()
        if "/opt/kquota &&" in line
    ]
    assert len(entries) == 4
    assert all(" umask 027; cd /opt/kquota && " in line for line in entries)
