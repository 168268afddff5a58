"""policy.yaml is read whole or refused with every mistake in it, each in one line; as shipped it only observes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from kquota_spark.config.rules import Duration
from kquota_spark.enforce.changes import Mode
from kquota_spark.enforce.guard_settings import Bounds, Exempt, GuardSettings
from kquota_spark.enforce.policies.policy import ClusterQuota, DefaultQuota, Lower, Penalty, Policies, Raise
from kquota_spark.enforcement.policies import load_policies, unknown_exempt
from kquota_spark.errors import UserError
from tests.support.places import CONF

CONF = CONF / "policy.yaml"
KINDS = (Penalty, Raise, ClusterQuota, Lower, DefaultQuota)
BOUNDS = "guards: {bounds: {producer_byte_rate: {floor: 1, ceiling: 1000000000}}}\n"
KEYS = "keys: [producer_byte_rate]"
PENALTY = f"name: a, kind: penalty, {KEYS}"


def _written(directory: Path, text: str) -> Path:
    path = directory / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _problems(directory: Path, text: str) -> list[str]:
    path = _written(directory, text)
    with pytest.raises(UserError) as raised:
        load_policies(path)
    lines = str(raised.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


def _with(policy: str) -> str:
    return f"{BOUNDS}policies: [{{{policy}}}]\n"


def test_a_policy_file_that_is_not_there_is_told_with_where_to_get_one(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    with pytest.raises(UserError) as raised:
        load_policies(path)
    assert str(raised.value) == (
        f"{path}: there is no policy file: copy policy.yaml and exempt.txt of our folder conf there, or set "
        "enforcement.policy_file; see kquota help enforcing"
    )


def test_as_shipped_everything_observes_only() -> None:
    policies = load_policies(CONF)
    assert policies.mode is Mode.OBSERVE
    assert [policies.mode_of(policy.name) for policy in policies.policies] == [Mode.OBSERVE] * 4
    assert [policy.kind for policy in policies.policies] == ["penalty", "raise", "lower", "default"]
    assert policies.exempt == Exempt(file="exempt.txt")


def test_the_shipped_file_shows_each_key_of_each_kind_with_its_default(tmp_path: Path) -> None:
    text = CONF.read_text(encoding="utf-8")
    budgets = text[text.index("#  - name: budgets") :].replace("#  ", "  ")
    assert load_policies(_written(tmp_path, BOUNDS + "policies:\n" + budgets))
    shown = yaml.safe_load(text)["policies"] + yaml.safe_load(budgets)
    for kind, policy in zip((Penalty, Raise, Lower, DefaultQuota, ClusterQuota), shown, strict=True):
        assert set(policy) == {field.name for field in fields(kind)}, kind
    assert set(yaml.safe_load(text)["guards"]) == {field.name for field in fields(GuardSettings)}
    policies = load_policies(CONF)
    assert policies.guards == GuardSettings(bounds=policies.guards.bounds)
    for policy in policies.policies:
        needed = {"name": policy.name, "kind": policy.kind}
        if isinstance(policy, Raise):
            needed["broker_capacity_per_s"] = policy.broker_capacity_per_s  # type: ignore[assignment]
        assert policy == type(policy)(**needed)  # type: ignore[arg-type]


def test_the_smallest_file_and_a_full_one(tmp_path: Path) -> None:
    assert load_policies(_written(tmp_path, "")) == Policies()
    text = (
        "mode: approve\n"
        "guards: {bounds: {producer_byte_rate: {floor: 1000, ceiling: 2500000.5}}, hold_time: 5 min}\n"
        "exempt: {users: [admin], patterns: [mm-.*]}\n"
        f"policies: [{{{PENALTY}, mode: enforce, within: 2 h, episodes: 3, expires_after: 90 min}}]\n"
    )
    found = load_policies(_written(tmp_path, text))
    bounds = {"producer_byte_rate": Bounds(floor=1000.0, ceiling=2_500_000.5)}
    assert found.guards == GuardSettings(bounds=bounds, hold_time=Duration(300_000))
    assert found.exempt == Exempt(users=("admin",), patterns=("mm-.*",))
    (policy,) = found.policies
    assert isinstance(policy, Penalty)
    assert (policy.within, policy.episodes, policy.expires_after) == (7_200_000, 3, 5_400_000)
    assert found.mode_of("a") is Mode.APPROVE


def test_an_unquoted_off_is_off(tmp_path: Path) -> None:
    assert load_policies(_written(tmp_path, "mode: off")).mode is Mode.OFF  # YAML 1.1 reads false
    assert load_policies(_written(tmp_path, "mode: 'off'")).mode is Mode.OFF


MISTAKES = [
    ("mode: on", ["mode: True, expected one of off, observe, approve, enforce"]),
    ("mode: 3", ["mode: 3, expected one of off, observe, approve, enforce"]),
    ("modes: off", ["modes: unknown key, did you mean mode?"]),
    ("policies: {a: b}", ["policies: a mapping, expected a list"]),
    (
        "policies: [{name: a}, 5]",
        [
            "policies[0].kind: nothing, expected one of penalty, raise, cluster_quota, lower, default",
            "policies[1].kind: 5, expected one of penalty, raise, cluster_quota, lower, default",
        ],
    ),
    (
        "policies: [{name: a, kind: penalty, episode: 3, to_percent: half, keys: [byte_rate]}]",
        [
            "policies[0].episode: unknown key, did you mean episodes?",
            (
                "policies[0].keys[0]: 'byte_rate', expected one of producer_byte_rate, consumer_byte_rate, "
                "request_percentage, controller_mutation_rate"
            ),
            "policies[0].to_percent: 'half', expected a number, e.g. 5000000",
        ],
    ),
    (  # YAML 1.1 reads a text
        "policies: [{name: a, kind: lower, step_percent: 1e1}]",
        ["policies[0].step_percent: '1e1', expected a number, e.g. 5000000"],
    ),
    ("guards: {bounds: [1]}", ["guards.bounds: a list, expected a mapping of names to mappings"]),
    (
        "guards: {bounds: {producer_byte_rate: {floor: .nan}}}",
        [
            "guards.bounds.producer_byte_rate.floor: nan, expected a number, e.g. 5000000",
            "guards.bounds.producer_byte_rate.ceiling: missing",
        ],
    ),
    (
        (
            "guards: {bounds: {byte_rate: {floor: 5, ceiling: 4, largest_step_percent: 0}}, min_certain_percent: 101, "
            "changes_per_hour: -1}"
        ),
        [
            "guards.bounds.byte_rate.largest_step_percent: 0, expected above 0, up to 100",
            "guards.changes_per_hour: -1, expected 0 or more",
            "guards.min_certain_percent: 101, expected 0 to 100",
            (
                "guards.bounds.byte_rate: unknown key, expected one of producer_byte_rate, consumer_byte_rate, "
                "request_percentage, controller_mutation_rate"
            ),
            "guards.bounds.byte_rate: floor 5, ceiling 4, expected 0 < floor <= ceiling",
        ],
    ),
    (
        "guards: {owners: {strimzi: [users/.*, 'a(']}}",
        ["guards.owners.strimzi[1]: 'a(' is no regular expression (missing ): a()"],
    ),
    (
        "exempt: {users: [''], patterns: ['a(']}",
        [
            "exempt.patterns[0]: 'a(' is no regular expression (missing ): a()",
            "exempt.users: an empty name, expected names",
        ],
    ),
    (
        f"policies: [{{name: A b, kind: penalty, {KEYS}}}, {{name: override, kind: penalty, {KEYS}}}]",
        [
            "policies[0].name: 'A b', expected up to 40 of a to z, 0 to 9 and -",
            "policies[1].name: override stands for changes by a person, expected another name",
            "policies[0].keys: no guards.bounds for producer_byte_rate, and a key without bounds is never changed",
            "policies[1].keys: no guards.bounds for producer_byte_rate, and a key without bounds is never changed",
        ],
    ),
    (
        f"{BOUNDS}policies: [{{{PENALTY}}}, {{{PENALTY}}}]",
        ["policies[1].name: a is the name of another policy too, expected each once"],
    ),
    (
        _with(f"{PENALTY}, used_percent: 99, to_percent: 0, episodes: 0, within: 59 s, expires_after: 0 s"),
        [
            "policies[0].within: '59 s', expected 1 min or more",
            "policies[0].episodes: 0, expected 1 or more",
            "policies[0].used_percent: 99, expected 100 or more",
            "policies[0].to_percent: 0, expected above 0, up to 100",
            "policies[0].expires_after: '0 s', expected 1 ms or more",
        ],
    ),
    (
        _with("name: a, kind: penalty, keys: [controller_mutation_rate]"),
        [
            (
                "policies[0].keys: 'controller_mutation_rate', expected producer_byte_rate, "
                "consumer_byte_rate, request_percentage"
            )
        ],
    ),
    (_with("name: a, kind: lower, keys: []"), ["policies[0].keys: empty, expected quota keys"]),
    (
        _with("name: a, kind: raise, broker_capacity_per_s: {byte_rate: 1}"),
        [
            (
                "policies[0].broker_capacity_per_s: 'byte_rate', expected producer_byte_rate, consumer_byte_rate, "
                "request_percentage"
            )
        ],
    ),
    (
        _with("name: a, kind: raise, broker_capacity_per_s: {producer_byte_rate: 0}"),
        ["policies[0].broker_capacity_per_s.producer_byte_rate: 0, expected above 0"],
    ),
    (
        _with(
            "name: a, kind: cluster_quota, key: producer_byte_rate, floor_per_broker: -1, "
            "budgets: {alice: 1, users/<default>: 1, users/a/clients/b: -1}"
        ),
        [
            "policies[0].budgets.users/a/clients/b: -1, expected above 0",
            "policies[0].floor_per_broker: -1, expected 0 or more",
            "policies[0].budgets: 'alice' is not users/U, clients/C or users/U/clients/C",
            "policies[0].budgets.users/<default>: a default is a quota for each, expected an entity with names",
        ],
    ),
    (
        _with("name: a, kind: default, entity: users/alice, values: {producer_byte_rate: 2000000000}"),
        ["policies[0].entity: 'users/alice', expected one of clients/<default>, users/<default>"],
    ),
    (
        _with("name: a, kind: default, values: {producer_byte_rate: 2.0e+9}"),
        ["policies[0].values.producer_byte_rate: 2e+09, expected 1 to 1e+09 as in guards.bounds"],
    ),
]


@pytest.mark.parametrize(("text", "problems"), MISTAKES)
def test_every_mistake_is_named_with_its_place(tmp_path: Path, text: str, problems: list[str]) -> None:
    assert _problems(tmp_path, text) == problems


def test_an_exemption_that_holds_for_nobody_is_named() -> None:
    policies = Policies(
        exempt=Exempt(
            users=("admin", "miror"), client_ids=("mm-1", "zz"), patterns=("mm-.", "connect-.*", "admin")
        )
    )
    assert unknown_exempt(policies, {"admin", "mirror"}, {"mm-1"}) == [
        "exempt.users: 'miror' is not known, did you mean 'mirror'?",
        "exempt.client_ids: 'zz' is not known, expected a name that was seen or has a quota",
        "exempt.patterns: 'connect-.*' matches no user and no client id that is known",
    ]
    assert unknown_exempt(Policies(), (), ()) == []
