"""What a key does to the view of `kquota top`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kquota_spark.cli.options import TYPES
from kquota_spark.cli.top_feed import Answer, Question
from kquota_spark.cli.top_page import SORT_KEYS, View
from kquota_spark.reports.top_buckets import BucketKey

_MOST_TYPED = 100


def after_key(view: View, key: str, character: str, page: int) -> View | None:
    """The view after a key; None to quit.

    Args:
        view: before it.
        key: its name, as Textual calls it.
        character: what it types; empty if nothing.
        page: rows that a page has.
    """
    if view.typed is not None:
        return _typing(view, view.typed, key, character)
    if character == "q":
        return None
    is_back = key in ("escape", "enter", "backspace", "left")
    if view.is_help:
        return replace(view, is_help=not is_back and character != "?")
    if character in ("?", "p"):
        return replace(view, is_help=character == "?", is_paused=view.is_paused != (character == "p"))
    if view.question.near is not None:
        return _asking(view, near=None) if is_back else view
    return _among_buckets(view, key, character, page)


def _typing(view: View, typed: str, key: str, character: str) -> View:
    if key in ("enter", "escape"):
        return replace(_asking(view, text=typed if key == "enter" else ""), typed=None, chosen=0)
    if key == "backspace":
        return replace(view, typed=typed[:-1])
    is_text = character.isprintable() and len(typed) < _MOST_TYPED
    return replace(view, typed=typed + character) if is_text else view


def _among_buckets(view: View, key: str, character: str, page: int) -> View:
    question = view.question
    rows = [] if view.answer is None else view.answer.top.rows
    if character == "/":
        return replace(view, typed=question.text)
    if key == "enter" and rows:
        return _asking(view, near=BucketKey.of(rows[view.chosen]))
    changes: dict[str, dict[str, Any]] = {
        "R": {"is_reversed": not question.is_reversed},
        "T": {"type": _next_type(question)},
        "escape": {"text": ""},
        **{letter: {"sort": sort, "is_reversed": False} for letter, sort in SORT_KEYS.items()},
    }
    asked = changes.get(character if character in changes else key)
    if asked is not None:
        return replace(_asking(view, **asked), chosen=0)
    steps = {"up": -1, "down": 1, "pageup": -page, "pagedown": page, "home": -len(rows), "end": len(rows)}
    return replace(view, chosen=max(0, min(view.chosen + steps.get(key, 0), len(rows) - 1)))


def _asking(view: View, **changed: Any) -> View:
    return replace(view, question=replace(view.question, **changed))


def _next_type(question: Question) -> str | None:
    order = (None, *TYPES)
    return order[(order.index(question.type) + 1) % len(order)]


def with_answer(view: View, answer: Answer) -> View:
    """The view with a newer answer; a bucket that was chosen below the first row stays chosen while it is there."""
    rows = answer.top.rows
    chosen = min(view.chosen, max(len(rows) - 1, 0))
    if chosen and view.answer is not None and view.chosen < len(view.answer.top.rows):
        before = BucketKey.of(view.answer.top.rows[view.chosen])
        chosen = next((place for place, row in enumerate(rows) if BucketKey.of(row) == before), chosen)
    return replace(view, answer=answer, chosen=chosen, error="")
