"""Names in new rules that may not be meant so: another case, blanks, hidden characters, encodings, mixed alphabets."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity
from kquota_spark.model.quotas.names import desanitise
from kquota_spark.model.quotas.quota_set import QuotaSet, in_order
from kquota_spark.reports.review.review import SuspiciousName

_ALPHABETS = {"LATIN", "CYRILLIC", "GREEK"}
"""Alphabets with letters that have the same shape."""
_OF_DEFAULTS = {DEFAULT.value, "default", "*"}


def suspicious_names(
    before: QuotaSet, after: QuotaSet, seen: Iterable[tuple[str, str]]
) -> list[SuspiciousName]:
    """The suspicious names of entities that only `after` has.

    Args:
        before: quotas before the change.
        after: quotas after it.
        seen: user and client id of each client of the period.
    """
    known: tuple[dict[str, set[str]], dict[str, set[str]]] = ({}, {})
    pairs = [*seen, *((one.user, one.client_id) for one in {*before, *after} if isinstance(one, Entity))]
    for pair in pairs:
        for names, name in zip(known, pair, strict=True):
            if isinstance(name, str):
                names.setdefault(_folded(name), set()).add(name)
    return [
        SuspiciousName(entity, why)
        for entity in in_order(after)
        if entity not in before
        for why in _problems(entity, known)
    ]


def _problems(entity: AnyEntity, known: tuple[dict[str, set[str]], dict[str, set[str]]]) -> Iterator[str]:
    if not isinstance(entity, Entity):
        return
    for part, name, names in zip(("user", "client id"), (entity.user, entity.client_id), known, strict=True):
        if isinstance(name, str) and (why := _problem(name, names, is_user=part == "user")) is not None:
            yield f"{part}: {why}"


def _problem(name: str, known: dict[str, set[str]], *, is_user: bool) -> str | None:
    is_typed = is_user and name.startswith("User:")
    checks = (
        (name in _OF_DEFAULTS, "a name, and not the default"),
        (is_typed, "begins with User:, and brokers compare the name without it"),
        (name != name.strip(), "begins or ends with a blank"),
        (terminal_text(name) != name, "has characters that do not show"),
        (len({*map(_alphabet, name)} & _ALPHABETS) > 1, "mixes letters of two alphabets that look alike"),
        (_is_encoded(name), "is encoded as ZooKeeper spells names, and brokers compare it as it is"),
        (len(known[_folded(name)]) > 1, "differs from another name only in case, width or blanks"),
    )
    return next((why for is_wrong, why in checks if is_wrong), None)


def _folded(name: str) -> str:
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def _alphabet(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0] if char.isalpha() else ""


def _is_encoded(name: str) -> bool:
    try:
        return desanitise(name) != name and "%" in name
    except ValueError:
        return False
