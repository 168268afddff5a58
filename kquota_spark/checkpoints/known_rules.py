"""The quotas of a cluster as a worker keeps them. Of 100,000 rules only the edited ones are made anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import IP_QUOTA_KEY, QuotaKey
from kquota_spark.model.quotas.rules import RuleBook, RuleStretch
from kquota_spark.pipeline.known import IpLimit
from kquota_spark.store.quota_rows import known_through_ms, only_rules, stretch_of
from kquota_spark.store.rows import rows_in_ms

_KEYS = (*(key.value for key in QuotaKey), IP_QUOTA_KEY)
_COMPARED = ("entity", "valid_from", "valid_to", "certain_from", "version", *_KEYS)
_KEPT_MS = 600_000
COLUMNS = ("level", "known_through", *_COMPARED)
"""What is read of `quota_rules`."""


class KnownRules:
    """Quotas of users, client ids and addresses over time, and through when they are known.

    Attributes:
        book: those of users and client ids.
        ips: those of addresses, by the canonical names of their entities.
        known_through_ms: all edits up to here are known; None if the source never said.
    """

    def __init__(self) -> None:
        self.book, self.ips = RuleBook(), dict[str, list[IpLimit]]()
        self.known_through_ms: int | None = None
        self._read: pa.Table | None = None

    def take_known_through(self, rows: pa.Table) -> None:
        """Take over the source's own rows."""
        self.known_through_ms = known_through_ms(rows_in_ms(rows))

    def take_rules(self, rows: pa.Table, open_from_ms: int = 0) -> bool:
        """Take over all other rows; whether they differ from those of before.

        Args:
            rows: of `quota_rules`.
            open_from_ms: what ended long before is left out: the edits of years would fill the memory.
        """
        valid_to = pc.field("valid_to")
        earliest = pa.scalar((open_from_ms - _KEPT_MS) * 1_000, pa.timestamp("us", tz="UTC"))
        is_wanted = only_rules() & (valid_to.is_null() | (valid_to > earliest))
        rules = rows.filter(is_wanted).select(list(_COMPARED))
        before, self._read = self._read, rules
        if before is None:
            self._replace(None, rules)
            return True
        changed = _changed_entities(before, rules)
        if changed:
            self._replace(changed, rules.filter(pc.field("entity").isin(changed)))
        return bool(changed)

    def _replace(self, entities: Iterable[str] | None, rules: pa.Table) -> None:
        stretches: dict[Entity, list[RuleStretch]] = {}
        ips = {} if entities is None else dict(self.ips)
        for name in entities or ():
            if name.startswith("ips/"):
                ips.pop(name, None)
            else:
                stretches[Entity.parse(name)] = []
        for row in rows_in_ms(rules):
            if not row["entity"].startswith("ips/"):
                stretch = stretch_of(row)
                stretches.setdefault(stretch.entity, []).append(stretch)  # type: ignore[arg-type]
            elif row[IP_QUOTA_KEY] is not None:
                held = IpLimit(row["valid_from"], row["valid_to"], row[IP_QUOTA_KEY], row["version"])
                ips.setdefault(row["entity"], []).append(held)
        self.ips = ips
        self.book = (RuleBook() if entities is None else self.book).replaced(stretches)


def _changed_entities(before: pa.Table, after: pa.Table) -> list[str]:
    """Entities with a row that only one of the tables has."""
    old, new = _texts(before), _texts(after)
    gone = before["entity"].filter(pc.invert(pc.is_in(old, value_set=new)))
    come = after["entity"].filter(pc.invert(pc.is_in(new, value_set=old)))
    found: list[Any] = pa.chunked_array([*gone.chunks, *come.chunks], pa.string()).unique().to_pylist()
    return found


def _texts(rules: pa.Table) -> Any:
    """Each row as one text."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rules.columns
    ]
    texts: Any = [column.cast(pa.string()) for column in columns]
    return pc.binary_join_element_wise(*texts, "\0", null_handling="replace", null_replacement="")
