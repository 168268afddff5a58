"""The effect of each key on the view of `kquota top`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kquota_spark.cli.top.feed import Answer, BucketView, Question
from kquota_spark.cli.top.page import SORT_KEYS, View
from kquota_spark.model.quotas.quota_types import TYPES
from kquota_spark.reports.scope.broker_buckets import BucketKey

_MOST_TYPED = 100
_BACK = ("escape", "backspace", "left")
_VIEWS = {"enter": BucketView.CHART, "e": BucketView.EXPLAIN, "v": BucketView.VIOLATIONS}


class Room(NamedTuple):
    """The size of the screen: rows per page, and how far its text can be scrolled, lines."""

    page: int
    most_scroll: int = 0


def after_key(view: View, key: str, character: str, room: Room) -> View | None:
    """The view after a key; None to quit.

    Args:
        view: the present view.
        key: Textual's name of the key.
        character: the character that it types; empty if there is none.
        room: the size of the screen.
    """
    if view.typed is not None:
        return _typing(view, view.typed, key, character)
    if character == "q":
        return None
    if character == "p":
        return replace(view, is_paused=not view.is_paused)
    if character == "?" or (view.is_help and key in (*_BACK, "enter")):
        return replace(view, is_help=not view.is_help, scroll=0)
    if view.is_help:
        return _scrolled(view, key, character, room)
    where = _among_buckets if view.question.selected is None else _among_views
    return where(view, key, character, room)


def _among_views(view: View, key: str, character: str, room: Room) -> View:
    if key in _BACK:
        return replace(_asking(view, selected=None), scroll=0)
    if key in _VIEWS:
        return replace(_asking(view, bucket_view=_VIEWS[key]), scroll=0)
    return _scrolled(view, key, character, room)


def _typing(view: View, typed: str, key: str, character: str) -> View:
    if key in ("enter", "escape"):
        return replace(_asking(view, text=typed if key == "enter" else ""), typed=None, chosen=0)
    if key == "backspace":
        return replace(view, typed=typed[:-1])
    is_text = character.isprintable() and len(typed) < _MOST_TYPED
    return replace(view, typed=typed + character) if is_text else view


def _among_buckets(view: View, key: str, character: str, room: Room) -> View:
    question = view.question
    rows = [] if view.answer is None else view.answer.top.rows
    if character == "/":
        return replace(view, typed=question.text)
    if key in _VIEWS and rows:
        return replace(
            _asking(view, selected=BucketKey.of(rows[view.chosen]), bucket_view=_VIEWS[key]), scroll=0
        )
    changes: dict[str, dict[str, Any]] = {
        "R": {"is_reversed": not question.is_reversed},
        "B": {"is_per_broker": not question.is_per_broker},
        "T": {"type": _next_type(question)},
        "escape": {"text": ""},
        **{letter: {"sort": sort, "is_reversed": False} for letter, sort in SORT_KEYS.items()},
    }
    asked = changes.get(character if character in changes else key)
    if asked is not None:
        return replace(_asking(view, **asked), chosen=0)
    return replace(view, chosen=_moved(view.chosen, key, character, room.page, len(rows) - 1))


def _scrolled(view: View, key: str, character: str, room: Room) -> View:
    start = min(view.scroll, room.most_scroll)
    return replace(view, scroll=_moved(start, key, character, room.page, room.most_scroll))


def _moved(place: int, key: str, character: str, page: int, last: int) -> int:
    """The place after a key that moves, from 0 to the last."""
    steps: Mapping[str, int] = {
        "up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "pagedown": page,
        "home": -place, "g": -place, "end": last - place, "G": last - place,
    }  # fmt: skip
    return max(0, min(place + steps.get(character, steps.get(key, 0)), last))


def _asking(view: View, **changed: Any) -> View:
    return replace(view, question=replace(view.question, **changed))


def _next_type(question: Question) -> str | None:
    order = (None, *TYPES)
    return order[(order.index(question.type) + 1) % len(order)]


def at_width(view: View, columns: int) -> View:
    """The view on a terminal of this width."""
    return _asking(view, columns=columns)


def with_answer(view: View, answer: Answer) -> View:
    """The view with a newer answer. A chosen bucket below the first row stays chosen while it exists."""
    rows = answer.top.rows
    chosen = min(view.chosen, max(len(rows) - 1, 0))
    if chosen and view.answer is not None and view.chosen < len(view.answer.top.rows):
        before = BucketKey.of(view.answer.top.rows[view.chosen])
        chosen = next((place for place, row in enumerate(rows) if BucketKey.of(row) == before), chosen)
    return replace(view, answer=answer, chosen=chosen, error="")
