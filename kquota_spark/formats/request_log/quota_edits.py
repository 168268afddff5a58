"""What an AlterClientQuotas request (KIP-546) asks for, as the request log shows it; none of it is secret."""

from __future__ import annotations

import json

import msgspec

from kquota_spark.model.quotas.entities import DEFAULT, Default, Entity, IpEntity

MOST_EDITS = 100
"""So many edits of a request are kept: a line may hold thousands."""


class _Part(msgspec.Struct, rename="camel"):
    entity_type: str
    entity_name: str | None = None


class _Op(msgspec.Struct):
    key: str
    value: float = 0.0
    remove: bool = False


class _Entry(msgspec.Struct):
    entity: list[_Part]
    ops: list[_Op]


class _Body(msgspec.Struct, rename="camel"):
    entries: list[_Entry]
    validate_only: bool = False


class QuotaEditsDecoder:
    """Turns request bodies into the text of `requests.altered_quotas`; holds the compiled decoder."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Body)

    def text(self, body: msgspec.Raw) -> str | None:
        """JSON list of `[entity, key, value]`, value null for a removal; None if it only asks whether it could.

        Raises:
            msgspec.ValidationError: it is no such request.
        """
        request = self._decoder.decode(body)
        if request.validate_only:
            return None
        edits = [
            (_entity(entry.entity), op.key, None if op.remove else op.value)
            for entry in request.entries
            for op in entry.ops
        ]
        return json.dumps(edits[:MOST_EDITS], ensure_ascii=False, separators=(",", ":"))


def _entity(parts: list[_Part]) -> str:
    """The canonical name; what Kafka would refuse is written down as it was asked for."""
    names: dict[str, str | Default] = {
        part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in parts
    }
    try:
        if names.keys() == {"ip"}:
            return str(IpEntity(names["ip"]))
        if names.keys() <= {"user", "client-id"}:
            return str(Entity(names.get("user"), names.get("client-id")))
    except ValueError:
        pass
    return ",".join(f"{part.entity_type}={part.entity_name}" for part in parts)
