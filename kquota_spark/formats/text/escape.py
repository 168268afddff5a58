"""Text from clients is data: made harmless for a terminal, a spreadsheet and JSON, and measured."""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import Any

_HIDDEN = {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
"""Controls (ESC, line feed, C1), bidi overrides and other formats, surrogates, unassigned, line ends."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Signs, their full-width forms, which some spreadsheets take for the same, and blanks that they drop before them."""
_MOST_MARKS = 3


def terminal_text(text: str) -> str:
    r"""Text with everything that a terminal would act on, or not show, as `\x1b` or `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if not _is_hidden(char):
        return char
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def csv_text(text: str) -> str:
    """Text that no spreadsheet takes for a formula: a leading apostrophe where it starts like one."""
    return "'" + text if text.startswith(_FORMULA_STARTS) else text


def json_text(value: Any) -> str:
    """JSON on one line, readable, and still without a character that a terminal acts on (C1, bidi, DEL).

    `json` itself escapes only the C0 controls; the others mean the same to a JSON reader as escapes.
    """
    return harmless_json(json.dumps(value, ensure_ascii=False, allow_nan=False))


def harmless_json(text: str) -> str:
    """A line of JSON without a character that a terminal acts on; it means the same to a JSON reader."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_json_escaped(char) if _is_hidden(char) else char for char in text)


def encodable_json(text: str, encoding: str) -> str:
    """JSON in characters that an encoding has; what `backslashreplace` makes of the others is no JSON."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(char if char.isascii() else _json_escaped(char) for char in text)
    return text


def _json_escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) != 0x7F else "\\u007f"


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN


def width(text: str) -> int:
    """Columns that a terminal uses for escaped text: wide East Asian characters 2, combining marks 0."""
    return len(text) if text.isascii() else sum(map(character_width, text))


def character_width(char: str) -> int:
    """As `width`, of one character."""
    if char.isascii():
        return 1
    from rich.cells import get_character_cell_size

    return get_character_cell_size(char)


def cut(text: str, columns: int) -> str:
    """Escaped text in at most so many columns; `…` stands for what is left out.

    Marks beyond three on one character are left out too: thousands of them would still have width 1.
    """
    shown: list[str] = []
    used = marks = 0
    for char in text:
        of_char = character_width(char)
        marks = marks + 1 if of_char == 0 else 0
        if marks > _MOST_MARKS:
            continue
        if used + of_char > columns:
            while shown and used > columns - 1:
                used -= character_width(shown.pop())
            return "".join(shown) + "…"
        shown.append(char)
        used += of_char
    return "".join(shown)


def cut_inside(text: str, columns: int, of_end: int | None = None) -> str:
    """As `cut`, but `of_end` columns, or a third, show the end: client ids of one application differ there."""
    whole = cut(text, sys.maxsize)
    if width(whole) <= columns:
        return whole
    end: list[str] = []
    left = (columns - 1) // 3 if of_end is None else of_end
    for char in reversed(whole):
        left -= character_width(char)
        if left < 0:
            break
        end.append(char)
    while end and character_width(end[-1]) == 0:
        end.pop()
    tail = "".join(reversed(end))
    return cut(whole, columns - width(tail)) + tail
