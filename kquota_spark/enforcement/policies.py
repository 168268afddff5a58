"""Read the policy file into `enforce.policies.policy.Policies`, and check its names.

Mistakes are found before anything is planned.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from kquota_spark.config.loader import read_yaml_as
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import OVERRIDE
from kquota_spark.enforce.guard_settings import Bounds, Exempt, GuardSettings
from kquota_spark.enforce.policies.policy import (
    ClusterQuota,
    DefaultQuota,
    Policies,
    Policy,
    Raise,
)
from kquota_spark.enforcement.exempt_file import read_exempt
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.name_patterns import is_match, pattern_problem
from kquota_spark.store.reading import Tables

_POLICY_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_KEYS = tuple(key.value for key in QuotaKey if key is not QuotaKey.CONTROLLER_MUTATION_RATE)
"""Keys that a policy may have. Mutations have one bucket at the active controller: no share per broker, and no rate to
compare with a limit."""
_NAMES = "select distinct {column} from {table} where cluster_id = ? and {column} is not null"


def load_policies(path: Path) -> Policies:
    """Read and check a policy file, and add the exempt names of its `exempt.file`.

    Raises:
        UserError: a file cannot be read, or has problems; one line per problem.
    """
    if not path.exists():
        raise UserError(
            f"{path}: there is no policy file: copy policy.yaml and exempt.txt of our folder conf there, or set "
            "enforcement.policy_file; see kquota help enforcing"
        )
    policies = read_yaml_as(Policies, path, _relations)
    if not policies.exempt.file:
        return policies
    listed = read_exempt(exempt_file(path, policies))
    return replace(policies, exempt=policies.exempt.and_those_of(listed))


def guards_of(settings: Settings) -> GuardSettings | None:
    """The guards of the policy file, which may have bounds; None without such a file.

    Raises:
        UserError: the file cannot be read, or has problems.
    """
    path = Path(settings.enforcement.policy_file)
    return load_policies(path).guards if path.is_file() else None


def _relations(policies: Policies) -> Iterator[str]:
    yield from _guard_problems(policies.guards)
    yield from _exempt_problems(policies.exempt)
    yield from _name_problems(policies.policies)
    for number, policy in enumerate(policies.policies):
        for problem in _policy_problems(policy, policies.guards):
            yield f"policies[{number}].{problem}"


def exempt_file(path: Path, policies: Policies) -> Path:
    """The path of `exempt.file`; a relative path starts at the folder of the policy file."""
    return path.parent / policies.exempt.file


def unknown_exempt(
    policies: Policies, known_users: Collection[str], known_client_ids: Collection[str]
) -> list[str]:
    """One line for each exemption that matches no known name: a name with a typo would protect nobody."""
    exempt = policies.exempt
    lines = []
    for key, names, known in (
        ("users", exempt.users, known_users),
        ("client_ids", exempt.client_ids, known_client_ids),
    ):
        for name in names:
            if name not in known:
                near = get_close_matches(name, sorted(known), n=1)
                hint = (
                    f", did you mean {near[0]!r}?"
                    if near
                    else ", expected a name that was seen or has a quota"
                )
                lines.append(f"exempt.{key}: {name!r} is not known{hint}")
    everybody = {*known_users, *known_client_ids}
    for pattern in exempt.patterns:
        if not any(is_match(pattern, name) for name in everybody):
            lines.append(f"exempt.patterns: {pattern!r} matches no user and no client id that is known")
    return lines


def _guard_problems(guards: GuardSettings) -> Iterator[str]:
    for key, bounds in guards.bounds.items():
        where = f"guards.bounds.{key}"
        if key not in {one.value for one in QuotaKey}:
            yield f"{where}: unknown key, expected one of {', '.join(one.value for one in QuotaKey)}"
        yield from _bounds_problems(where, bounds)
    for tool, patterns in guards.owners.items():
        yield from _pattern_problems(f"guards.owners.{tool}", patterns)


def _bounds_problems(where: str, bounds: Bounds) -> Iterator[str]:
    # KRaft refuses values that are not above 0, and in ZooKeeper mode a quota of 0 throttles nobody.
    if not 0 < bounds.floor <= bounds.ceiling:
        yield f"{where}: floor {bounds.floor:g}, ceiling {bounds.ceiling:g}, expected 0 < floor <= ceiling"


def _pattern_problems(where: str, patterns: Sequence[str]) -> Iterator[str]:
    for number, pattern in enumerate(patterns):
        if problem := pattern_problem(pattern):
            yield f"{where}[{number}]: {pattern[:60]!r} {problem}"


def _exempt_problems(exempt: Exempt) -> Iterator[str]:
    yield from _pattern_problems("exempt.patterns", exempt.patterns)
    for key in ("users", "client_ids", "patterns"):
        if "" in getattr(exempt, key):
            yield f"exempt.{key}: an empty name, expected names"


def _name_problems(policies: Collection[Policy]) -> Iterator[str]:
    seen: set[str] = set()
    for number, policy in enumerate(policies):
        where = f"policies[{number}].name"
        if not _POLICY_NAME.fullmatch(policy.name):
            yield f"{where}: {policy.name[:60]!r}, expected up to 40 of a to z, 0 to 9 and -"
        elif policy.name == OVERRIDE:
            yield f"{where}: {OVERRIDE} stands for changes by a person, expected another name"
        elif policy.name in seen:
            yield f"{where}: {policy.name} is the name of another policy too, expected each once"
        seen.add(policy.name)


def _policy_problems(policy: Policy, guards: GuardSettings) -> Iterator[str]:
    where, names = _keys_given(policy)
    for name in names:
        if name not in _KEYS:
            yield f"{where}: {name!r}, expected {', '.join(_KEYS)}"
        elif name not in guards.bounds:
            yield f"{where}: no guards.bounds for {name}, and a key without bounds is never changed"
    if not names:
        yield f"{where}: empty, expected quota keys"
    if isinstance(policy, ClusterQuota):
        yield from _budget_problems(policy)
    if isinstance(policy, DefaultQuota):
        yield from _default_problems(policy, guards)


def _keys_given(policy: Policy) -> tuple[str, list[str]]:
    """The field of the policy that has its quota keys, and these keys."""
    match policy:
        case Raise():
            return "broker_capacity_per_s", list(policy.broker_capacity_per_s)
        case DefaultQuota():
            return "values", list(policy.values)
        case ClusterQuota():
            return "key", [policy.key.value]
    return "keys", [key.value for key in policy.keys]


def _budget_problems(policy: ClusterQuota) -> Iterator[str]:
    if not policy.budgets:
        yield "budgets: empty, expected entities with their budgets"
    for name in policy.budgets:
        try:
            entity = Entity.parse(name)
        except ValueError as error:
            yield f"budgets: {error}"
            continue
        if not all(isinstance(part, str | None) for part in (entity.user, entity.client_id)):
            yield f"budgets.{name}: a default is a quota for each, expected an entity with names"


def _default_problems(policy: DefaultQuota, guards: GuardSettings) -> Iterator[str]:
    for name, value in policy.values.items():
        bounds = guards.bounds.get(name)
        if bounds is not None and not bounds.floor <= value <= bounds.ceiling:
            yield f"values.{name}: {value:g}, expected {bounds.floor:g} to {bounds.ceiling:g} as in guards.bounds"


class KnownNames(NamedTuple):
    """Users and client ids that ever sent requests or had a quota."""

    users: frozenset[str]
    client_ids: frozenset[str]


def known_names(settings: Settings) -> KnownNames:
    """All names in `usage` and `quota_rules`; no names from a table that does not exist.

    Raises:
        UserError: a table cannot be read.
    """
    names: dict[str, set[str]] = {'"user"': set(), "client_id": set()}
    with Tables(settings) as tables:
        for table in filter(tables.open_if_there, ("usage", "quota_rules")):
            for column, found in names.items():
                sql = _NAMES.format(table=table, column=column)
                found.update(row[0] for row in tables.query(sql, [settings.cluster_id]).rows)
    return KnownNames(*map(frozenset, names.values()))


def unknown_exemptions(settings: Settings, policies: Policies) -> list[str]:
    """One line for each exemption that matches no name in the tables.

    Raises:
        UserError: a table cannot be read.
    """
    return unknown_exempt(policies, *known_names(settings))
