"""Broken lines: nothing but `Unreadable` is ever raised, and no broken line becomes a request.

What is broken is decided by an oracle of its own, with `json.loads`: no JSON, or a field that bytes, identity or
time depend on missing or of the wrong type. Of a name that stands twice in an object the last one counts in both.
"""

from __future__ import annotations

import copy
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kquota_spark.formats.request_log.line import Request, RequestLogParser, Unreadable
from tests.property.formats.request_log_oracle import Broken, json_facts, text_facts
from tests.support.chance import Chance
from tests.support.places import DATA

LINES_PER_KIND = 12
_KIND = re.compile(rb'"requestApiKey":(\d+),"requestApiVersion":(\d+)|apiKey=(\w+), apiVersion=(\d+)')
_BOUNDARY = re.compile(rb'[,;{}\[\]]"?')
_WORDS = [
    b"-",
    b"0",
    b"9" * 40,
    b"1e308",
    b"NaN",
    b"Infinity",
    b'"',
    b"}",
    b"{",
    b"[",
    b"]",
    b",",
    b"null",
    b":",
]
_WORDS += [
    b"\\ud800",
    b"\\u0000",
    b"\xff",
    b"\x00",
    b"\n",
    b'"requestApiKey":0,',
    b"true",
    b" ",
    b"(",
    b")",
    b"=",
]
_VALUES: list[Any] = [
    None,
    True,
    False,
    "x",
    "",
    "5",
    -1,
    0,
    1.5,
    2**31,
    2**70,
    -(2**40),
    [],
    {},
    [None],
    [1],
    {"a": 1},
]


def real_lines() -> list[bytes]:
    """Some lines of every request and version in the captures."""
    seen: Counter[bytes] = Counter()
    found: list[bytes] = []
    for path in sorted(DATA.glob("*/*request.log.gz")):
        with gzip.open(path) as file:
            for line in file:
                kind = _KIND.search(line, 0, 400)
                if kind is not None and seen[kind[0]] < LINES_PER_KIND:
                    seen[kind[0]] += 1
                    found.append(line.rstrip(b"\n"))
    return found


LINES = real_lines()


def _flipped(line: bytes, dice: Chance) -> bytes:
    changed = bytearray(line)
    for _ in range(dice.randint(1, 3)):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def _place(line: bytes, dice: Chance) -> int:
    """Anywhere, or where one thing ends and the next begins."""
    places = [match.start() for match in _BOUNDARY.finditer(line)]
    return dice.choice(places) if places and dice.random() < 0.7 else dice.randrange(len(line) + 1)


def _cut(line: bytes, dice: Chance) -> bytes:
    start, end = sorted((_place(line, dice), _place(line, dice)))
    return dice.choice([line[:start], line[end:], line[:start] + line[end:]])


def _doubled(line: bytes, dice: Chance) -> bytes:
    start, end = sorted((_place(line, dice), _place(line, dice)))
    at = end if dice.random() < 0.7 else _place(line, dice)
    return line[:at] + line[start:end] + line[at:]


def _spliced(line: bytes, dice: Chance) -> bytes:
    other = dice.choice(LINES)
    if dice.random() < 0.5:
        # At the same name: what comes out is often well formed.
        name = dice.choice(re.findall(rb'"?\w+"?[:=]', line))
        at = other.find(name)
        if at >= 0:
            return line[: line.index(name)] + other[at:]
    return line[: _place(line, dice)] + other[_place(other, dice) :]


def _inserted(line: bytes, dice: Chance) -> bytes:
    start = _place(line, dice)
    return line[:start] + dice.choice(_WORDS) + line[start + dice.choice([0, 0, 1, 5]) :]


def _objects(value: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            found.append(one)
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
    return [one for one in found if one]


def _with_another_field(line: bytes, dice: Chance) -> bytes:
    """A field dropped, of another type, or under another name."""
    start, end = line.find(b'{"'), line.rfind(b"}") + 1
    if start < 0 or not line.startswith(b"Completed request:", start - 18):
        return _inserted(line, dice)
    body = json.loads(line[start:end])
    for _ in range(dice.randint(1, 2)):
        one = dice.choice(_objects(body))
        name = dice.choice(list(one))
        how = dice.randrange(3)
        value = one.pop(name)
        if how == 1:
            # A copy: the second change may go into it, and a value that holds itself has no end.
            one[name] = copy.deepcopy(dice.choice(_VALUES))
        elif how == 2:
            one[dice.choice([name + "x", "records", "topicId", "replicaId", "throttleTimeMs"])] = value
    return line[:start] + json.dumps(body, ensure_ascii=False).encode() + line[end:]


MUTATIONS: list[Callable[[bytes, Chance], bytes]] = [
    _flipped, _cut, _doubled, _spliced, _inserted, _with_another_field
]  # fmt: skip


def _check(line: bytes, found: Request) -> None:
    """The request is what the oracle reads, and fits the columns of the requests table.

    Raises:
        Broken: there should be none.
    """
    facts = json_facts(line) if b'Completed request:{"' in line[:200] else text_facts(line)
    assert facts == {name: getattr(found, name) for name in facts}
    assert 0 <= found.record_time_ms < 2**63
    assert found.charged_bytes is None or 0 <= found.charged_bytes < 2**31
    assert 0 <= found.observed_throttle_ms < 2**31
    "".join([found.user, found.client_id, found.connection, *found.topics]).encode("utf-8")


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__.strip("_"))
def test_no_broken_line_becomes_a_request(mutate: Callable[[bytes, Chance], bytes], chance: Chance) -> None:
    parser, read = RequestLogParser(), 0
    for _ in range(100_000 // len(MUTATIONS) + 1):
        line = mutate(chance.choice(LINES), chance)
        try:
            found = parser.parse(line)
        except Unreadable:
            continue
        read += 1
        try:
            _check(line, found)
        except (Broken, AssertionError) as error:
            pytest.fail(f"{error}: {line!r}")
    # A fuzzer whose every line is refused would find nothing.
    assert read > 100


def test_the_oracle_reads_the_type_of_a_principal_up_to_the_first_colon() -> None:
    # Out of `principal:User:alice` by a piece that stands there twice: a line that a broker could have written.
    line = next(line for line in LINES if b"principal:User:alice," in line)
    found = text_facts(line.replace(b"principal:User:alice", b"principal:Userprincipal:User:alice"))
    assert (found["principal_type"], found["user"]) == ("Userprincipal", "User:alice")


def test_the_oracle_reads_every_real_line() -> None:
    assert len(LINES) > 150
    parser = RequestLogParser()
    for line in LINES:
        _check(line, parser.parse(line))
