"""Equal quotas in other texts: another format, order, spelling of numbers, quoting, comments, ends of lines."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kquota_spark.cli.main import parser_for
from kquota_spark.formats.exchange.registry import FORMATS
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from tests.support.chance import Chance

_NAMES = (
    "alice", "CN=orders,O=x", "a%2Fb", "null", "true", "0x10", "1e3", "Ünïcode", "a b", "x:y", "#no", "[1]", "it's",
)  # fmt: skip
_FORMATS = ("declared", "kfk", "rpk", "kafka-configs")


class Alarms(NamedTuple):
    """Pairs of texts with equal quotas for which a review has an output, and how many pairs are equal texts."""

    found: list[tuple[str, str, int, str]]
    same: int


def alarms(chance: Chance, pairs: int, folder: Path) -> Alarms:
    """Review drawn pairs of texts with equal quotas; the command is parsed once."""
    base, head = folder / "base", folder / "head"
    options = parser_for(["review"]).parse_args(["review", "--base", str(base), "--head", str(head)])
    found, same = [], 0
    for _ in range(pairs):
        quotas = drawn_quotas(chance)
        texts = encoded(chance, quotas), encoded(chance, quotas)
        same += texts[0] == texts[1]
        for file, text in zip((base, head), texts, strict=True):
            file.write_text(text, encoding="utf-8", newline="")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = options.run(options)
        if (code, out.getvalue()) != (0, ""):
            found.append((*texts, code, out.getvalue()))
    return Alarms(found, same)


def drawn_quotas(chance: Chance) -> QuotaSet:
    """Up to eight entities with one to three values each."""
    found: dict[AnyEntity, dict[AnyKey, float]] = {}
    for _ in range(chance.randint(1, 8)):
        found[_entity(chance)] = {
            key: float(chance.choice((1, 5, 80_000, 1_000_000, 2_000_000, 1_234_567)))
            for key in chance.sample([*QuotaKey], chance.randint(1, 3))
        }
    if chance.random() < 0.3:
        found[IpEntity(f"10.0.0.{chance.randint(1, 9)}")] = {IpQuotaKey.CONNECTION_CREATION_RATE: 5.0}
    return found


def _entity(chance: Chance) -> Entity:
    parts: tuple[Name, Name] = (None, None)
    while parts == (None, None):
        parts = tuple(chance.choice((None, DEFAULT, chance.choice(_NAMES))) for _ in range(2))  # type: ignore[assignment]
    return Entity(*parts)


def encoded(chance: Chance, quotas: QuotaSet) -> str:
    """A text with these quotas, in a drawn format, order and spelling."""
    name = chance.choice(_FORMATS)
    order = [*quotas]
    chance.shuffle(order)
    text = FORMATS[name].write({entity: quotas[entity] for entity in order})
    shuffled = {"declared": _declared, "kfk": _json, "rpk": _json, "kafka-configs": _sentences}
    text = shuffled[name](chance, text)
    if chance.random() < 0.2:
        text = "\ufeff" + text
    return text + "\n" * chance.randint(0, 2)


def _declared(chance: Chance, text: str) -> str:
    entries: list[dict[str, Any]] = yaml.safe_load(text)
    chance.shuffle(entries)
    for entry in entries:
        entry["value"] = _spelled(chance, entry["type"], entry["value"])
        for key in ("from_ms", "to_ms", "user", "client_id"):
            if key in entry and entry[key] is None and chance.random() < 0.5:
                del entry[key]
    style: Callable[..., str] = yaml.safe_dump
    text = style(
        entries, default_flow_style=chance.choice((None, False)), allow_unicode=chance.random() < 0.5,
        sort_keys=chance.random() < 0.5, width=chance.choice((20, 80, 400)),
    )  # fmt: skip
    return f"# reviewed\n{text}" if chance.random() < 0.5 else text


def _spelled(chance: Chance, key: str, value: float) -> object:
    """A number in another spelling of the same value."""
    spellings: list[object] = [value, float(value), str(value)]
    if key.endswith("byte_rate"):
        spellings += [f"{value:,} B/s", f"{value / 1_000:.3f} kB/s", f"{value / 1_000_000:.6f}MB/s"]
    elif key == QuotaKey.REQUEST_PERCENTAGE:
        spellings.append(f"{value}%")
    return chance.choice(spellings)


def _json(chance: Chance, text: str) -> str:
    return json.dumps(
        _shuffled(chance, json.loads(text)),
        indent=chance.choice((None, 1, 4)), ensure_ascii=chance.random() < 0.5,
    )  # fmt: skip


def _shuffled(chance: Chance, value: Any) -> Any:
    if isinstance(value, dict):
        keys = [*value]
        # The first key of a document is the mark of its format.
        if "quotas" not in value:
            chance.shuffle(keys)
        return {key: _shuffled(chance, value[key]) for key in keys}
    if isinstance(value, list):
        items = [_shuffled(chance, item) for item in value]
        chance.shuffle(items)
        return items
    return value


def _sentences(chance: Chance, text: str) -> str:
    lines = text.splitlines()
    chance.shuffle(lines)
    return chance.choice(("\n", "\n\n")).join(lines) + "\n"
