"""Names that a migration mangles are all found, and harmless encodings of equal quotas give no alarm: drawn cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.findings.idle_rules import Mangled, mangled_names
from kquota_spark.formats.exchange.registry import FORMATS
from kquota_spark.formats.znodes.nodes import name_nodes
from kquota_spark.model.compare.observed_clients import Seen
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default, Entity, Name
from kquota_spark.model.quotas.names import sanitise
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.migration.leftovers import leftover_names
from tests.reviews.encodings import drawn_quotas, encoded
from tests.support.chance import Chance
from tests.support.programs.command_output import run
from tests.support.reports.reviewed_tables import PRODUCE, quota_file, write_reviewed_tables

CASES = 200
_CHARACTERS = "ab=:,+* /%é漢@~<>\"'\\.-_"


def raw_name(chance: Chance, *, is_encoded: bool) -> str:
    """A name of up to 12 characters; with `is_encoded` ZooKeeper spells it in another way."""
    while True:
        name = "".join(chance.choice(_CHARACTERS) for _ in range(chance.randint(1, 12)))
        if not is_encoded or sanitise(name) != name:
            return name


def mangled(name: Name, of_default: str) -> Name:
    """A name as Kafka 3.6.1 leaves it in KRaft: as ZooKeeper spells it, the default as a name (KAFKA-16222, 16411)."""
    if isinstance(name, Default):
        return of_default
    return None if name is None else sanitise(name)


def drawn_entity(chance: Chance) -> Entity:
    """A user, a client id or a pair, at least one part of it a name that is encoded in ZooKeeper, or the default."""
    parts: list[Name] = [chance.choice((DEFAULT, raw_name(chance, is_encoded=True)))]
    parts.append(chance.choice((None, DEFAULT, raw_name(chance, is_encoded=False))))
    chance.shuffle(parts)
    return Entity(*parts)


def test_all_names_that_a_migration_mangles_are_found_with_the_entity_that_was_meant(chance: Chance) -> None:
    missed = []
    for _ in range(CASES):
        meant = drawn_entity(chance)
        of_default = chance.choice(("", "<default>", "%3Cdefault%3E"))
        stands = Entity(mangled(meant.user, of_default), mangled(meant.client_id, of_default))
        others: dict[AnyEntity, Any] = {
            entity: values
            for entity, values in drawn_quotas(chance).items()
            if isinstance(entity, Entity) and entity not in (meant, stands)
        }
        before: QuotaSet = {**others, meant: {PRODUCE: 1e6}}
        after: QuotaSet = {**others, stands: {PRODUCE: 1e6}}
        found = [(one.meant, one.stands) for one in mangled_names(before, after)]
        if found != [(meant, stands)]:
            missed.append((meant, stands, found))
    assert missed == []


def test_mangled_names_of_both_sides_are_found_by_the_clients(chance: Chance) -> None:
    """Both may be of the time after the migration; then they are equal."""
    missed = []
    for _ in range(CASES):
        user = raw_name(chance, is_encoded=True)
        quotas: QuotaSet = {Entity(sanitise(user)): {PRODUCE: 1e6}}
        seen = [Seen(user, "app", QuotaType.PRODUCE, 1)]
        found = [(one.meant, one.stands) for one in leftover_names(quotas, seen, ())]
        if found != [(Entity(user), Entity(sanitise(user)))]:
            missed.append((user, found))
    assert missed == []


def test_a_rule_for_an_empty_name_is_a_mangled_default_on_any_side() -> None:
    quotas: QuotaSet = {Entity(""): {PRODUCE: 1e6}, Entity("alice"): {PRODUCE: 1e6}}
    assert [(one.meant, one.stands) for one in leftover_names(quotas, (), ())] == [
        (Entity(DEFAULT), Entity(""))
    ]
    known = [Mangled(Entity(DEFAULT), Entity(""), "")]
    assert [*leftover_names(quotas, (), known)] == []


def harmless(chance: Chance) -> tuple[QuotaSet, list[Seen]]:
    """Quotas with names that look encoded and are meant so, and clients that have these names."""
    quotas: dict[AnyEntity, dict[Any, float]] = {}
    seen = []
    for _ in range(chance.randint(1, 6)):
        user = chance.choice(
            (raw_name(chance, is_encoded=False), sanitise(raw_name(chance, is_encoded=True)))
        )
        quotas[Entity(user)] = {PRODUCE: float(chance.choice((1, 80_000, 2_000_000)))}
        seen.append(Seen(user, "app", QuotaType.PRODUCE, 1))
    return quotas, seen


def test_names_as_zookeeper_spells_them_are_the_raw_names_of_kraft(chance: Chance) -> None:
    alarms = []
    for _ in range(CASES):
        quotas, seen = harmless(chance)
        nodes = name_nodes([str(entity) for entity in quotas])
        of_zookeeper: QuotaSet = {nodes.entities[str(entity)]: values for entity, values in quotas.items()}
        assert not nodes.problems
        found = [*mangled_names(of_zookeeper, quotas), *leftover_names(quotas, seen, ())]
        if found or of_zookeeper != quotas:
            alarms.append((quotas, found))
    assert alarms == []


@pytest.mark.timeout(180)
def test_200_pairs_of_equal_quotas_in_other_encodings_pass(tmp_path: Path, chance: Chance) -> None:
    settings = write_reviewed_tables(tmp_path)
    alarms, same = [], 0
    before, after = tmp_path / "before", tmp_path / "after"
    words = ("--before", str(before), "--after", str(after), "--config", str(settings), "--output", "json")
    for _ in range(CASES):
        quotas = drawn_quotas(chance)
        texts = encoded(chance, quotas), encoded(chance, quotas)
        same += texts[0] == texts[1]
        for file, text in zip((before, after), texts, strict=True):
            file.write_text(text, encoding="utf-8", newline="")
        code, out, _ = run("migration", *words)
        answer = json.loads(out)
        if (code, answer["is_changed"], answer["mangled"]) != (0, False, []):
            alarms.append((*texts, out))
    assert alarms == []
    assert same < CASES / 4, "most pairs differ as texts"


def test_one_mangled_name_in_another_format_stops(tmp_path: Path, chance: Chance) -> None:
    settings = write_reviewed_tables(tmp_path)
    meant, stands = Entity("CN=orders,O=x", "a b"), Entity("CN%3Dorders%2CO%3Dx", "a%20b")
    before = tmp_path / "before.json"
    before.write_text(FORMATS["kfk"].write({meant: {PRODUCE: 1e6}}), encoding="utf-8")
    after = quota_file(tmp_path, "after.yaml", {stands: {PRODUCE: 1e6}})
    words = ("--before", str(before), "--after", str(after), "--config", str(settings), "--output", "json")
    code, out, _ = run("migration", *words)
    assert code == 3
    assert json.loads(out)["mangled"] == [
        {
            "meant": str(meant),
            "stands": str(stands),
            "why": "the name is still as ZooKeeper spells it (KAFKA-16222)",
        }
    ]
