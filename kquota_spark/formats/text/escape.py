"""Makes untrusted text from clients harmless for a terminal, a spreadsheet and JSON; measures and cuts it.

Long names in few columns are cut so that no two different names become equal.
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
"""Unicode categories of hidden characters.

Controls (ESC, line feed, C1), bidi overrides and other formats, surrogates, unassigned, private use, line ends.
"""
_SANITISED = re.compile(r"(?:%[0-9A-F]{2})+")
_OF_ENTITIES = "/<>*%"
"""Characters that separate or mark the parts of a canonical name, and the one that sanitises."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Signs, their full-width forms, which some spreadsheets treat alike, and blanks that they drop before a sign."""
_MOST_MARKS = 3
_COMMA, _IS = r"(?:,\s*|%2C(?:%20|\+)?)", r"(?:=|%3D)"
"""Patterns of a comma and an equals sign, in a raw name and in a sanitised one, which rules contain."""
_VALUE = r"(?:\\.|%(?!2C)|[^,/\\% ]| (?!/))*+"
"""Never backtracks: a client could choose a name for which each attempt scans the whole name."""
_PART = re.compile(rf"{_COMMA}[A-Za-z][\w.]*{_IS}{_VALUE}")
_DN = re.compile(rf"(?<![\w=])CN{_IS}{_VALUE}(?:{_PART.pattern})++(?<! )(?= /|/|$)")
"""A distinguished name of mTLS that begins with the common name, alone or left of a client id.

It does not start inside a word or at a value. Otherwise each place in `CN=CN=CN=` would be tried to the end.
"""
_PAIR = re.compile(r"(.+?)( / |/clients/|/c/)(.+)")
"""A user and a client id, in the form of buckets and rules."""
_STEM = re.compile(r"(?:[│|]  |   )*(?:├─ |└─ |\|- |`- )?")
_LEAST = 6
_LONGEST = 1_000
"""Maximum columns of a name that are compared; clients may send thousands."""
_MOST_PARTS = 8
_LEAD = 4
"""Maximum columns of a name's beginning that are shown before the place where it differs."""
_Form = Callable[[str], str]


def terminal_text(text: str) -> str:
    r"""Text with each character that a terminal would act on, or not show, escaped as `\x1b` or `\u202e`."""
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
    """The canonical name of an entity for a terminal, with raw names of clients: `users/CN=orders,O=x`.

    Characters that would make it read as another entity stay sanitised: `users/a%2Fclients%2Fb` is one user.
    """
    return terminal_text(_SANITISED.sub(lambda found: _readable(found[0]), canonical))


def _readable(text: str) -> str:
    return "".join(sanitise(char) if char in _OF_ENTITIES else char for char in desanitise(text))


def csv_text(text: str) -> str:
    """Text that no spreadsheet reads as a formula: it gets a leading apostrophe if it starts like one."""
    return "'" + text if text.startswith(_FORMULA_STARTS) else text


def json_text(value: Any) -> str:
    """Readable JSON on one line, without a character that a terminal acts on (C1, bidi, DEL).

    `json` itself escapes only the C0 controls. The others are escaped here; a JSON reader gets the same value.
    """
    return harmless_json(json.dumps(value, ensure_ascii=False, allow_nan=False))


def harmless_json(text: str) -> str:
    """A line of JSON without a character that a terminal acts on; a JSON reader gets the same value."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_json_escaped(char) if _is_hidden(char) else char for char in text)


def encodable_json(text: str, encoding: str) -> str:
    """JSON in characters that an encoding has, the others escaped; those of `backslashreplace` are not valid JSON."""
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
    """Columns that a terminal uses for one character; see `width`."""
    if char.isascii():
        return 1
    from rich.cells import get_character_cell_size

    return get_character_cell_size(char)


def cut(text: str, columns: int) -> str:
    """Escaped text in at most `columns` columns; `…` replaces the rest.

    Combining marks beyond three on one character are left out too: thousands of them would still have width 1.
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
    """Like `cut`, but `of_end` columns (default: a third) show the end: client ids of one application differ there."""
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
    """A form of each text in at most `columns` columns; different texts have different forms.

    A distinguished name keeps its common name, `CN=alice…`, and further parts while two forms are equal. In a pair,
    both names are cut. Other texts keep their beginning and their end. Texts that differ elsewhere show that place,
    and as a last resort a number. Strokes of a tree at the left are not part of a name.

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
        # Short names count too: beside `CN=alice,OU=x` in full, `CN=alice…` would be ambiguous.
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
    # One series of numbers for all: otherwise each of thousands of equal beginnings would be counted from 2 again.
    numbers = count(2)
    for name in waiting:
        shorts = (cut(whole[name], columns - len(str(number))) + str(number) for number in numbers)
        found[name] = next(short for short in shorts if short not in taken)
        taken.add(found[name])
    return found


def _forms(texts: Sequence[str], columns: int) -> Iterator[_Form]:
    """Ways to cut, the simplest first; an empty result means that the way does not apply."""
    pairs = _pairs(texts, columns)
    yield lambda text: pairs.get(text, "")
    for parts in range(1, _MOST_PARTS + 1):
        yield partial(_named, parts=parts, columns=columns)
    for end in ((columns - 1) // 3, (columns - 1) // 2, 2 * (columns - 1) // 3, 0):
        yield partial(cut_inside, columns=columns, of_end=end)
    places = _places(texts)
    yield lambda text: _window(text, places[text], columns)


def _pairs(texts: Sequence[str], columns: int) -> Mapping[str, str]:
    """Forms of the texts that are pairs, with both names cut; none if there is no room for two names."""
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
    """A distinguished name with `parts` of its parts; empty for other texts, or if it has fewer parts."""
    found = _distinguished(text)
    if found is None:
        return ""
    of_name = list(_PART.finditer(text, found.start(), found.end()))
    if parts > len(of_name):
        return ""
    return cut_inside(f"{text[: of_name[parts - 1].start()]}…{text[found.end() :]}", columns)


@lru_cache(maxsize=256)
def _distinguished(text: str) -> re.Match[str] | None:
    """The distinguished name in a text; cached, because each form of the text needs it again."""
    return _DN.search(text)


def _places(texts: Sequence[str]) -> Mapping[str, int]:
    """The place where each text first differs from the most similar one, which is a neighbour in sorted order."""
    ordered = sorted(set(texts))
    shared = [0, *map(_shared, ordered, ordered[1:]), 0]
    return {text: max(shared[index], shared[index + 1]) for index, text in enumerate(ordered)}


def _shared(one: str, other: str) -> int:
    """Length of the beginning that two texts share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _window(text: str, place: int, columns: int) -> str:
    """A short beginning, or the common name, then the text from a place on."""
    name = _distinguished(text)
    common = f"{text[: _PART.search(text, name.start()).start()]}…" if name else ""  # type: ignore[union-attr]
    fits = common and width(common) <= columns * 3 // 4
    lead = common if fits else cut(text, min(_LEAD, columns // 2))
    return lead + cut(text[place:], columns - width(lead))
