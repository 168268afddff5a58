"""Text from clients is data: made harmless for a terminal, a spreadsheet and JSON, measured, and cut.

Long names in few columns are cut so that no two of them look equal.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import count
from typing import Any

from kquota_spark.model.quotas.names import desanitise, sanitise

_HIDDEN = {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
"""Controls (ESC, line feed, C1), bidi overrides and other formats, surrogates, unassigned, line ends."""
_SANITISED = re.compile(r"(?:%[0-9A-F]{2})+")
_OF_ENTITIES = "/<>*%"
"""What parts of a canonical name are told from each other by, and what sanitises."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Signs, their full-width forms, which some spreadsheets take for the same, and blanks that they drop before them."""
_MOST_MARKS = 3
_COMMA, _IS = r"(?:,\s*|%2C(?:%20|\+)?)", r"(?:=|%3D)"
"""Of a name as it is, and of a sanitised one as rules have it."""
_VALUE = r"(?:\\.|%(?!2C)|[^,/\\% ]| (?!/))*+"
"""Nothing is given back: names of clients may be made so that each attempt goes through the whole of them."""
_PART = re.compile(rf"{_COMMA}[A-Za-z][\w.]*{_IS}{_VALUE}")
_DN = re.compile(rf"(?<![\w=])CN{_IS}{_VALUE}(?:{_PART.pattern})++(?<! )(?= /|/|$)")
"""A distinguished name of mTLS that begins with the common name, alone or left of a client id.

It begins no value and no word: of `CN=CN=CN=` each place would otherwise be tried through to the end.
"""
_PAIR = re.compile(r"(.+?)( / |/clients/|/c/)(.+)")
"""A user and a client id, as buckets and rules have them."""
_STEM = re.compile(r"(?:[│|]  |   )*(?:├─ |└─ |\|- |`- )?")
_LEAST = 6
_LONGEST = 1_000
"""Columns of a name that are looked at; clients may send thousands."""
_MOST_PARTS = 8
_LEAD = 4
"""Characters of the beginning that stand before the place where a name differs."""
_Form = Callable[[str], str]


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


def entity_text(canonical: str) -> str:
    """The canonical name of an entity for a terminal, with names as clients have them: `users/CN=orders,O=x`.

    What would make it look like another entity stays sanitised: `users/a%2Fclients%2Fb` is one user.
    """
    return terminal_text(_SANITISED.sub(lambda found: _readable(found[0]), canonical))


def _readable(text: str) -> str:
    return "".join(sanitise(char) if char in _OF_ENTITIES else char for char in desanitise(text))


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


def distinct_cuts(texts: Iterable[str], columns: int) -> Mapping[str, str]:
    """A form of each text in at most so many columns; forms of different texts are different.

    A distinguished name keeps its common name, `CN=alice…`, and further parts while two are equal. Of a pair both
    names are cut. Other texts keep their beginning and their end. Texts that differ elsewhere show that place, and at
    last a number. Strokes of a tree at the left are no part of a name.

    Args:
        texts: escaped texts.
        columns: at least 6, so that a number has room.
    """
    parts = {text: _parts(text) for text in dict.fromkeys(texts)}
    found: dict[str, str] = {}
    for indent in {width(stem) for stem, _ in parts.values()}:
        inside = {text: both for text, both in parts.items() if width(both[0]) == indent}
        names = dict.fromkeys(name for _, name in inside.values())
        short = _names_cut(names, max(columns - indent, _LEAST))
        found |= {text: stem + short[name] for text, (stem, name) in inside.items()}
    return found


def _parts(text: str) -> tuple[str, str]:
    """The strokes of a tree and the name."""
    found = _STEM.match(text)
    end = found.end() if found else 0
    return text[:end], text[end:]


def _names_cut(names: Iterable[str], columns: int) -> Mapping[str, str]:
    whole = {name: cut(name, max(columns + 1, _LONGEST)) for name in names}
    waiting = [name for name, shown in whole.items() if width(shown) > columns]
    found = {name: shown for name, shown in whole.items() if width(shown) <= columns}
    taken = set(found.values())
    for form in _forms(list(whole.values()), columns) if waiting else ():
        # Short names count too: of `CN=alice,OU=x` whole and `CN=alice…` nobody knows who the other is.
        made = {name: form(shown) for name, shown in whole.items()}
        often = Counter(made.values())
        fine = {
            name: made[name]
            for name in waiting
            if made[name]
            and often[made[name]] == 1
            and made[name] not in taken
            and width(made[name]) <= columns
        }
        found |= fine
        taken |= set(fine.values())
        waiting = [name for name in waiting if name not in fine]
        if not waiting:
            break
    # One series for all of them: thousands of equal beginnings would each be counted again.
    numbers = count(2)
    for name in waiting:
        shorts = (cut(whole[name], columns - len(str(number))) + str(number) for number in numbers)
        found[name] = next(short for short in shorts if short not in taken)
        taken.add(found[name])
    return found


def _forms(texts: Sequence[str], columns: int) -> Iterator[_Form]:
    """Ways to cut, the plainest first; an empty form is none."""
    pairs = _pairs(texts, columns)
    yield lambda text: pairs.get(text, "")
    for parts in range(1, _MOST_PARTS + 1):
        yield partial(_named, parts=parts, columns=columns)
    for end in ((columns - 1) // 3, (columns - 1) // 2, 2 * (columns - 1) // 3, 0):
        yield partial(cut_inside, columns=columns, of_end=end)
    places = _places(texts)
    yield lambda text: _window(text, places[text], columns)


def _pairs(texts: Sequence[str], columns: int) -> Mapping[str, str]:
    """Both names of each pair in few columns, where there is room for two."""
    pairs = {text: found for text in texts if (found := _PAIR.fullmatch(text))}
    if not pairs:
        return {}
    room = columns - max(width(found[2]) for found in pairs.values())
    if room < 2 * _LEAST:
        return {}
    lefts, rights = ([found[group] for found in pairs.values()] for group in (1, 3))
    widest_right = max(map(width, rights))
    of_left = min(max(map(width, lefts)), max(room // 2, room - widest_right))
    left, right = distinct_cuts(lefts, of_left), distinct_cuts(rights, room - of_left)
    return {text: f"{left[found[1]]}{found[2]}{right[found[3]]}" for text, found in pairs.items()}


def _named(text: str, parts: int, columns: int) -> str:
    """A distinguished name with so many of its parts; empty for another text, or one that has no more of them."""
    found = _distinguished(text)
    if found is None:
        return ""
    of_name = list(_PART.finditer(text, found.start(), found.end()))
    if parts > len(of_name):
        return ""
    return cut_inside(f"{text[: of_name[parts - 1].start()]}…{text[found.end() :]}", columns)


@lru_cache(maxsize=256)
def _distinguished(text: str) -> re.Match[str] | None:
    """The distinguished name in a text; each form of the text asks for it again."""
    return _DN.search(text)


def _places(texts: Sequence[str]) -> Mapping[str, int]:
    """Where each text first differs from the one that it is most like: that one stands beside it in their order."""
    ordered = sorted(set(texts))
    shared = [0, *map(_shared, ordered, ordered[1:]), 0]
    return {text: max(shared[index], shared[index + 1]) for index, text in enumerate(ordered)}


def _shared(one: str, other: str) -> int:
    """Length of the beginning that two texts share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _window(text: str, place: int, columns: int) -> str:
    """The beginning, then the text from a place on."""
    name = _distinguished(text)
    common = f"{text[: _PART.search(text, name.start()).start()]}…" if name else ""  # type: ignore[union-attr]
    fits = common and width(common) <= columns * 3 // 4
    lead = common if fits else cut(text, min(_LEAD, columns // 2))
    return lead + cut(text[place:], columns - width(lead))
