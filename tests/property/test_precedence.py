"""Precedence is total and unique: of any set of quotas at most one governs, and the walk accounts for all."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.quotas.enabled_types import EnabledTypes
from kquota_spark.model.quotas.entities import DEFAULT, LEVELS, Entity, Name
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.resolve import Standing, bucket_of_level, candidates, resolve

_SETTINGS = settings(deadline=None, print_blob=True)
_USERS: list[Name] = ["u", "v", DEFAULT, None]
_CLIENTS: list[Name] = ["c", "d", DEFAULT, None]
_ENTITIES = [Entity(u, c) for u in _USERS for c in _CLIENTS if (u, c) != (None, None)]
_VALUES = st.dictionaries(st.sampled_from(QuotaKey), st.floats(0, 1e9), max_size=4)
RULES = st.dictionaries(st.sampled_from(_ENTITIES), _VALUES)
BITS = st.sampled_from([EnabledTypes(bits) for bits in range(8)])


def test_the_levels_are_all_combinations_in_one_order() -> None:
    assert len(set(LEVELS)) == len(LEVELS) == 8
    assert [entity.level for entity in candidates("u", "c")] == [1, 2, 3, 4, 5, 6, 7, 8]


@_SETTINGS
@given(RULES, st.sampled_from(QuotaKey), st.sampled_from(["u", "v", "w"]), st.sampled_from(["c", "d", "e"]))
def test_the_first_level_that_carries_the_key_governs(
    rules: dict[Entity, dict[QuotaKey, float]], key: QuotaKey, user: str, client_id: str
) -> None:
    found = resolve(user, client_id, key, rules.get)
    carrying = [entity for entity in candidates(user, client_id) if key in rules.get(entity, {})]
    first = min(carrying, key=lambda entity: entity.level, default=None)
    assert found.entity == first
    assert found.limit == (None if first is None else rules[first][key])
    assert found.bucket == bucket_of_level(found.level, user, client_id)


@_SETTINGS
@given(RULES, st.sampled_from(QuotaKey), st.sampled_from(["u", "w"]), st.sampled_from(["c", "e", ""]), BITS,
       st.none() | st.floats(1, 1e9))  # fmt: skip
def test_the_walk_accounts_for_every_candidate(
    rules: dict[Entity, dict[QuotaKey, float]],
    key: QuotaKey,
    user: str,
    client_id: str,
    enabled: EnabledTypes,
    static_default: float | None,
) -> None:
    found = resolve(user, client_id, key, rules.get, enabled=enabled, static_default=static_default)
    walked = [step.entity for step in found.walk if step.entity is not None]
    assert walked == list(candidates(user, client_id))
    governing = [step for step in found.walk if step.standing is Standing.GOVERNS]
    assert [(step.level, step.entity, step.limit) for step in governing] == (
        [] if found.limit is None else [(found.level, found.entity, found.limit)]
    )
    for step in found.walk:
        has_limit = step.standing in (Standing.GOVERNS, Standing.OVERRIDDEN, Standing.NOT_REACHED)
        assert (step.limit is not None) == has_limit
        if step.standing is Standing.OVERRIDDEN:
            assert found.level is not None
            assert step.level > found.level
