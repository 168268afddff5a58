"""The chart and the image recipe: everything runs without root, and starts programs with arguments that they take.

Helm is no package of Python, so its output for `tests/data/helm/values.yaml` is kept beside those; with the digest of
the chart that it was made of. `python -m tests.programs.install.test_helm_chart` makes it anew, and lints it, where
helm, hadolint and kubernetes-validate are on the PATH (from the Go module proxy and PyPI).
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kquota_spark.cli.main import parser
from kquota_spark.config.loader import load_settings
from kquota_spark.enforce.changes import Mode
from kquota_spark.enforcement.policies import load_policies
from tests.support.places import CONF, DATA

CHART = CONF / "helm" / "kquota"
DOCKERFILE = CONF / "helm" / "Dockerfile"
VALUES, RENDERED = DATA / "helm" / "values.yaml", DATA / "helm" / "rendered.yaml"
TOOLS = ("helm", "hadolint", "kubernetes-validate")


def digest() -> str:
    """Of all that helm renders from."""
    files = sorted(path for path in CHART.rglob("*") if path.is_file())
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in (*files, VALUES))).hexdigest()


def rendered() -> str:
    command = ("helm", "template", "payments", str(CHART), "--values", str(VALUES))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return f"# of the chart {digest()}\n{done.stdout}"


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(RENDERED.read_text(encoding="utf-8")))


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in manifests():
        spec = manifest.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template is not None:
            yield manifest["metadata"]["name"], template["spec"]


def test_the_kept_output_of_helm_is_of_this_chart() -> None:
    first = RENDERED.read_text(encoding="utf-8").partition("\n")[0]
    assert first == f"# of the chart {digest()}", (
        "render it anew: python -m tests.programs.install.test_helm_chart"
    )


def test_every_pod_starts_a_command_with_options_that_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    commands = {name: pod["containers"][0]["command"] for name, pod in pods()}
    assert {name: command[:2] for name, command in commands.items()} == {
        "payments-audit": ["kquota", "audit"],
        "payments-enforcer": ["kquota", "enforce"],
        "payments-exporter": ["kquota", "exporter"],
        "payments-maintain": ["kquota", "maintain"],
        "payments-shipper-1": ["kquota", "ship"],
        "payments-shipper-2": ["kquota", "ship"],
    }
    assert commands["payments-shipper-2"][-1] == "2=/var/log/kafka/kafka-request.log"
    for program, *words in commands.values():
        if program == "kquota":
            parser().parse_args(words)
    assert "COPY jobs /opt/kquota/jobs" in DOCKERFILE.read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""


def test_no_pod_runs_as_root_or_writes_beyond_its_volumes() -> None:
    found = dict(pods())
    assert len(found) == 6
    for name, pod in found.items():
        [container] = pod["containers"]
        assert (pod["securityContext"]["runAsNonRoot"], pod["automountServiceAccountToken"]) == (
            True,
            False,
        ), name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }, name  # fmt: skip
        assert container["resources"]["limits"]["memory"], name
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}, name
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert [part.rsplit("USER ", 1)[-1].split()[0] for part in text.split("\nFROM ")[1:]] == [
        "10001:10001"
    ] * 2


def test_its_settings_and_its_policy_are_valid_and_only_observe(tmp_path: Path) -> None:
    [files] = [manifest["data"] for manifest in manifests() if manifest["kind"] == "ConfigMap"]
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    settings = load_settings(tmp_path / "kquota.yaml")
    assert (settings.tables, settings.enforcement.policy_file) == (
        "/data/kquota/tables",
        "/etc/kquota/policy.yaml",
    )
    assert load_policies(tmp_path / "policy.yaml").mode is Mode.OBSERVE


def test_the_image_has_the_java_and_the_user_that_the_chart_names() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE) == [
        ("python:3.11-slim-bookworm", "commands"),
        ("commands", "spark"),
    ]
    assert "openjdk-17-jre-headless" in text and "--uid 10001" in text
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    named = {line.split()[-2] for line in text.splitlines() if line.startswith("#   docker build")}
    assert {values["image"]["commands"], values["image"]["spark"]} == named


@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}")
def test_the_linters_find_nothing() -> None:
    lint()
    assert rendered() == RENDERED.read_text(encoding="utf-8")


def lint() -> None:
    """Raise the first finding of a linter."""
    for command in (
        ("helm", "lint", "--strict", str(CHART), "--values", str(VALUES)),
        ("kubernetes-validate", "--strict", str(RENDERED)),
        ("hadolint", "--failure-threshold", "warning", str(DOCKERFILE)),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    RENDERED.write_text(rendered(), encoding="utf-8")
    lint()
    sys.exit(0)
