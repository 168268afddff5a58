"""The manifests and the chart for Kubernetes: what their pods may do, and who reaches them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.places import CONF, DATA

FILES = [*sorted((CONF / "kubernetes").glob("*.yaml")), DATA / "helm" / "rendered.yaml"]
_Spec = dict[str, Any]
POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
LISTENED_ON = {9191: "metrics of the job", 9192: "exporter"}


class Pod(NamedTuple):
    """What the tests ask of a pod, of whatever kind its manifest is."""

    name: str
    labels: dict[str, str]
    pod_context: _Spec
    container_contexts: list[_Spec]
    has_token: bool
    mounted: set[str]


def documents(path: Path) -> list[_Spec]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def applications(path: Path) -> Iterator[tuple[str, _Spec]]:
    """Spark applications of a file, those on a schedule too."""
    for manifest in documents(path):
        if manifest["kind"] in ("SparkApplication", "ScheduledSparkApplication"):
            spec = manifest["spec"]
            yield manifest["metadata"]["name"], spec.get("template", spec)


def pods(path: Path) -> Iterator[Pod]:
    """Pods that a file makes."""
    for name, application in applications(path):
        for role in ("driver", "executor"):
            spec = application[role]
            yield Pod(
                f"{name} {role}", spec.get("labels", {}), spec.get("podSecurityContext", {}),
                [spec.get("securityContext", {})],
                spec.get("template", {}).get("spec", {}).get("automountServiceAccountToken", True),
                {mount["mountPath"] for mount in spec["volumeMounts"]},
            )  # fmt: skip
    for manifest in documents(path):
        spec = manifest.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template", {})
        if "containers" in template.get("spec", {}):
            pod = template["spec"]
            yield Pod(
                manifest["metadata"]["name"], template.get("metadata", {}).get("labels", {}),
                pod.get("securityContext", {}),
                [container.get("securityContext", {}) for container in pod["containers"]],
                pod.get("automountServiceAccountToken", True),
                {mount["mountPath"] for container in pod["containers"] for mount in container["volumeMounts"]},
            )  # fmt: skip


def test_the_files_have_so_many_pods() -> None:
    assert {path.name: len(list(pods(path))) for path in FILES} == {
        "kquota-audit.yaml": 5,  # an application, the same on a schedule, maintain
        "kquota-enforce.yaml": 3,
        "kquota-exporter.yaml": 1,
        "rendered.yaml": 6,
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_pod_runs_without_root_and_rights_and_writes_to_volumes_alone(path: Path) -> None:
    for pod in pods(path):
        assert {key: pod.pod_context.get(key) for key in POD} == POD, pod.name
        assert pod.pod_context["runAsUser"] >= 100, pod.name
        assert pod.container_contexts == [CONTAINER], pod.name
        assert "/tmp" in pod.mounted, pod.name
        # Spark's entry point writes into the working directory of its image.
        assert "/opt/spark/work-dir" in pod.mounted or not pod.name.endswith(("driver", "executor")), pod.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_drivers_alone_get_a_token_of_the_cluster(path: Path) -> None:
    assert [pod.name for pod in pods(path) if pod.has_token != pod.name.endswith(" driver")] == []


def test_spark_authenticates_and_encrypts_between_pods_and_has_no_page() -> None:
    found = {name: spec for path in FILES for name, spec in applications(path)}
    assert set(found) == {"kquota-audit", "kquota-audit-once", "kquota-enforce"}
    wanted = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
        "spark.ui.enabled": "false",
    }
    for name, spec in found.items():
        assert {key: spec.get("sparkConf", {}).get(key) for key in wanted} == wanted, name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_network_policy_is_before_every_pod_and_names_who_reaches_it(path: Path) -> None:
    policies = [one["spec"] for one in documents(path) if one["kind"] == "NetworkPolicy"]
    assert {tuple(policy["policyTypes"]) for policy in policies} == {("Ingress",)}
    chosen = [policy["podSelector"]["matchLabels"].items() for policy in policies]
    assert [
        pod.name for pod in pods(path) if not any(labels <= pod.labels.items() for labels in chosen)
    ] == []
    for policy in policies:
        own = {"podSelector": policy["podSelector"]}
        for rule in policy["ingress"]:
            # A rule without peers is for everybody.
            assert rule["from"], policy
            if rule["from"] != [own]:
                assert [port["port"] in LISTENED_ON for port in rule["ports"]] == [True], policy
