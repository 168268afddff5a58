"""The note beside a checkpoint with the versions that the newest micro-batch judges by; commands read it too."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import msgspec

from kquota_spark.checkpoints.checkpoints import LOG
from kquota_spark.checkpoints.notes import read_note, write_note
from kquota_spark.config.settings import Settings
from kquota_spark.pipeline.shadow.rules import ShadowPin
from kquota_spark.store.commits import MicroBatch
from kquota_spark.store.storage import place_of

Versions = dict[str, int]
"""Versions by table; a table that does not exist is left out."""


class NotedPins(NamedTuple):
    """The versions of one micro-batch."""

    batch: MicroBatch
    versions: Versions
    shadow: ShadowPin | None = None
    """The shadow quotas; None for none."""


def write_pins(settings: Settings, query: str, pins: NotedPins) -> None:
    """Replace the note of a query.

    Raises:
        UserError: it cannot be written.
    """
    write_note(settings, _path(settings, query), msgspec.json.encode(pins))


def noted_pins(settings: Settings, query: str) -> NotedPins | None:
    """The note of a query; None for none, or a damaged one.

    Raises:
        UserError: it cannot be read.
    """
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(read_note(settings, _path(settings, query)) or b"", type=NotedPins)
    return None


def shadow_in_force(settings: Settings) -> ShadowPin | None:
    """The shadow quotas of the newest micro-batch; None for none, or before the first one.

    Raises:
        UserError: the note cannot be read.
    """
    noted = noted_pins(settings, LOG)
    return None if noted is None else noted.shadow


def _path(settings: Settings, query: str) -> str:
    return place_of(settings.checkpoints, f"{query}.pinned.json")
