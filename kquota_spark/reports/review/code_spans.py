"""Names of clients as code in Markdown of GitHub: no name becomes a link, a mention, HTML, or the end of a cell.

A backslash does not prevent a mention or an address of mail: GitHub finds them after it has read the Markdown. It
leaves code alone, so each name is code. A name that could end a code span is HTML code, with its marks as references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kquota_spark.formats.text.escape import distinct_cuts, terminal_text
from kquota_spark.model.quotas.entities import AnyEntity, Default, Entity, Name
from kquota_spark.model.quotas.quota_set import parts_of
from kquota_spark.model.quotas.resolve import Bucket

MOST_COLUMNS = 48
"""Maximum columns of a name: client ids of hundreds of characters would hide the figures."""
_PLAIN = re.compile(r"[^`|\\\s](?:[^`|\\\s]| (?=[^`|\\\s]))*")
"""A name that is safe between backticks in a table: without backtick, pipe, backslash, and blanks at the ends."""
_BREAKS = "@:."
"""Marks after which a break is allowed: it keeps addresses of web and mail apart, which would become links."""


class Names:
    """Short forms of names, in which two different names never become equal."""

    def __init__(self, names: Iterable[str]) -> None:
        self._short: Mapping[str, str] = distinct_cuts(map(terminal_text, names), MOST_COLUMNS)

    def code(self, name: str) -> str:
        """A name as code; an empty one is the word empty."""
        if not name:
            return "(empty)"
        shown = terminal_text(name)
        return code_span(self._short.get(shown, shown))

    def client(self, user: str | None, client_id: str | None) -> str:
        """A user and a client id; None is any name without a rule."""
        parts = [
            f"{part} {'(any)' if name is None else self.code(name)}"
            for part, name in (("user", user), ("client", client_id))
        ]
        return ", ".join(parts)

    def bucket(self, bucket: Bucket) -> str:
        """A bucket: a user, a client id, or both; of a quota callback its tags."""
        tags = (("user", bucket.user), ("client", bucket.client_id))
        parts = [f"{part} {self.code(name)}" for part, name in tags if name]
        parts += [f"tag {self.code(f'{tag}={value}')}" for tag, value in bucket.custom_tags]
        return ", ".join(parts) or f"client {self.code('')}"

    def entity(self, entity: AnyEntity) -> str:
        """The entity of a rule: `default user` is the rule of all users without their own."""
        parts = ((kind.value.replace("client-id", "client"), name) for kind, name in parts_of(entity).items())
        return ", ".join(
            f"default {part}" if isinstance(name, Default) else f"{part} {self.code(name)}"
            for part, name in parts
        )


def code_span(text: str) -> str:
    """Text on one line as code, unchanged for readers."""
    if _PLAIN.fullmatch(text) and text.isprintable():
        return f"`{text}`"
    return f"<code>{''.join(map(_reference, text))}</code>"


def _reference(char: str) -> str:
    if char.isalnum():
        return char
    return f"&#{ord(char)};" + ("<wbr>" if char in _BREAKS else "")


def names_of(entities: Iterable[AnyEntity]) -> list[str]:
    """The names in entities, without defaults."""
    found: list[Name] = []
    for entity in entities:
        found += (entity.user, entity.client_id) if isinstance(entity, Entity) else (entity.ip,)
    return [name for name in found if isinstance(name, str)]
