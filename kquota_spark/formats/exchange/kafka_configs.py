"""The sentences that `kafka-configs.sh --describe` prints for users, clients and ips: one line per entity.

    Quota configs for user-principal 'u', client-id 'c' are producer_byte_rate=1024.0, request_percentage=200.0

The tool escapes nothing. A name may contain quotes and commas as long as its line can be read in one way only. A name
with a line feed, or one that reads as a pair, is refused.

The wording of the tool with direct access to ZooKeeper is read too, up to 2.5 and in Kafka's documentation
(`Configs for ...`, `default user-principal`, commas without blanks). The tool also prints SCRAM credentials of users.
They are ignored and never quoted, because the old wording contains the keys.

Scripts of `kafka-configs.sh --alter` are only written. Source: Kafka's `ConfigCommand`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import Never

from kquota_spark.formats.exchange.checks import (
    Reading,
    checked_text,
    number_text,
    parts_of,
    refuse,
    shown,
    writable,
)
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Name
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey

_WORDS = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_HEADS = ("Quota configs for ", "Configs for ")
_ABOUT_SCRAM = ("SCRAM credential configs for ", "Error retrieving SCRAM credential configs for ")
_SCRAM_KEYS = re.compile(
    r"SCRAM-SHA-(?:256|512)=salt=[^,]{0,200},stored_key=[^,]{0,200},server_key=[^,]{0,200},iterations=\d{1,9}(?:,|$)"
)
_VALUE = re.compile(r"([A-Za-z_.]+)=([^\s,=']+)")
_OPTIONS = {"user": "users", "client-id": "clients", "ip": "ips"}
_SCRIPT_HEAD = """\
#!/bin/sh
: "${BOOTSTRAP_SERVER:?expected host:port of a broker}"
failed=0
"""
_USERS = ("user-principal '", "the default user-principal,", "default user-principal,")
_CLIENTS = ("'", " default client-id")
_BEFORE_CLIENT = re.compile(
    r"(?:(?<=')|(?<=default user-principal)), (?=client-id '|(?:the )?default client-id$)"
)


def read(text: str) -> QuotaSet:
    """The quotas of such sentences; ValueError with one line per problem, each with its line number."""
    reading = Reading()
    for number, line in enumerate(checked_text(text).split("\n"), start=1):
        sentence = line.removesuffix("\r")
        if sentence.strip() and not sentence.startswith(_ABOUT_SCRAM):
            _read_sentence(f"line {number}", sentence, reading)
    return reading.quotas()


def _read_sentence(where: str, sentence: str, reading: Reading) -> None:
    head = next((head for head in _HEADS if sentence.startswith(head)), None)
    who, verb, values = f"{sentence} ".rpartition(" are ")  # there may be no values
    if head is None or not verb:
        reading.problem(where, "expected a sentence such as Quota configs for user-principal 'alice' are ...")
        return
    try:
        parts = _parts(who.removeprefix(head))
    except ValueError as error:
        reading.problem(where, str(error))
        return
    entity = reading.entity(where, parts)
    if entity is None:
        return
    for item in filter(None, re.split(", ?", _SCRAM_KEYS.sub("", values.strip()))):
        value = _VALUE.fullmatch(item)
        if value is None:
            # Not quoted: it may be a part of a credential.
            reading.problem(where, "expected key=value, key=value after are")
            return
        reading.add(where, entity, value[1], value[2])


def _parts(who: str) -> list[tuple[str, Name]]:
    """The parts of `user-principal 'u', the default client-id`; a text that can be read as a pair is one."""
    pairs = list(islice(_pairs(who), 2))
    if len(pairs) > 1:
        raise ValueError("names with quotes that read in several ways")
    if pairs:
        return pairs[0]
    one = _part(who)
    if one is None:
        msg = (
            f"{shown(who)}, expected user-principal 'NAME', client-id 'NAME', ip 'NAME' or a default of these"
        )
        raise ValueError(msg)
    return [one]


def _pairs(who: str) -> Iterator[list[tuple[str, Name]]]:
    """All ways to read a text as a pair. Only commas that can separate one are tried: there may be a million."""
    if who.startswith(_USERS) and who.endswith(_CLIENTS):
        for comma in _BEFORE_CLIENT.finditer(who):
            user, client_id = _part(who[: comma.start()]), _part(who[comma.end() :])
            if user is not None and client_id is not None:
                yield [user, client_id]


def _part(text: str) -> tuple[str, Name] | None:
    for kind, word in _WORDS.items():
        if text in (f"the default {word}", f"default {word}"):
            return kind, DEFAULT
        if text.startswith(f"{word} '") and text.endswith("'") and len(text) > len(word) + 3:
            return kind, text[len(word) + 2 : -1]
    return None


def write(quotas: QuotaSet) -> str:
    """The sentences, as the tool prints them since 2.6; ValueError for names that would not be read back the same."""
    problems: list[str] = []
    lines = []
    for entity, values in writable(quotas):
        line = _sentence(entity, values)
        if _read_back(line) != {entity: values}:
            problems.append(f"{entity}: kafka-configs escapes nothing, so this name would read otherwise")
        lines.append(f"{line}\n")
    refuse(problems)
    return "".join(lines)


def _sentence(entity: AnyEntity, values: Mapping[AnyKey, float]) -> str:
    who = [
        f"the default {_WORDS[kind]}" if name is DEFAULT else f"{_WORDS[kind]} '{name}'"
        for kind, name in parts_of(entity)
    ]
    what = [f"{key.value}={_java_double(value)}" for key, value in values.items()]
    return f"{_HEADS[0]}{', '.join(who)} are {', '.join(what)}"


def _read_back(line: str) -> QuotaSet | None:
    try:
        return read(line)
    except ValueError:
        return None


def _java_double(value: float) -> str:
    """A number as Java's `Double.toString` prints it: `1024.0`, and `1.048576E7` from ten million on."""
    digits = Decimal(repr(float(value)))
    if value == 0 or 1e-3 <= value < 1e7:
        return format(digits, "f")
    text = "".join(map(str, digits.as_tuple().digits)).rstrip("0")
    return f"{text[0]}.{text[1:] or '0'}E{digits.adjusted()}"


def refuse_commands(_text: str) -> Never:
    """Always raises ValueError: a script from elsewhere is never run to find out what it would set."""
    raise ValueError("commands are only written, never read: import what kafka-configs.sh --describe prints")


def write_commands(quotas: QuotaSet) -> str:
    """A script of commands that set the quotas, one command per entity.

    The commands change only the quotas that they name. Names are quoted for a POSIX shell. If one entity is refused,
    the others are still set, and the script exits with 1.

    Raises:
        ValueError: a name or value that no format can hold, or a name that no command line can hold.
    """
    lines = []
    for entity, values in writable(quotas):
        words = []
        for kind, name in parts_of(entity):
            named = ["--entity-default"] if name is DEFAULT else ["--entity-name", shlex.quote(str(name))]
            words += ["--entity-type", _OPTIONS[kind], *named]
        what = ",".join(f"{key.value}={number_text(value)}" for key, value in values.items())
        lines.append(
            f'kafka-configs.sh --bootstrap-server "$BOOTSTRAP_SERVER" --alter {" ".join(words)} --add-config {what} '
            "|| failed=1\n"
        )
    if any("\0" in line for line in lines):
        raise ValueError("a name with a NUL character, which no command line can hold")
    return f"{_SCRIPT_HEAD}{''.join(lines)}exit $failed\n"
