"""The longest names that Kafka takes, 32,767 bytes, made of what makes patterns slow: each pattern is linear.

Time is that of the thread's own CPU. A function that takes little is not measured twice. One that takes more must take
less than eight times what it takes for a name of a quarter: a linear one takes four times as much, a quadratic one
sixteen times.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable

import pytest

from kquota_spark.cli.quotas.kfk_selection import user_and_clients
from kquota_spark.errors import UserError
from kquota_spark.findings.client_findings import IdSeen, unstable_client_ids
from kquota_spark.formats.exchange.registry import FORMATS, guess
from kquota_spark.formats.jmx.exporter_page import mbeans_of
from kquota_spark.formats.jmx.sample import addresses
from kquota_spark.formats.messages.messages import storable_text
from kquota_spark.formats.request_log.line import RequestLogParser
from kquota_spark.formats.request_log.request import Unreadable
from kquota_spark.formats.text import escape
from kquota_spark.model.quotas.entities import Entity, parse_entity
from kquota_spark.model.quotas.mbean_names import mbean_name, parse_mbean_name
from kquota_spark.model.quotas.names import desanitise
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.name_patterns import is_match
from kquota_spark.reports.pages.page_markdown import escaped
from kquota_spark.reports.pages.page_names import safe_name
from kquota_spark.ship.selection import line_filter
from tests.support.logs.log_lines import FETCH_V12, PRODUCE_V9
from tests.support.logs.text_lines import FETCH_0102, FETCH_27, PRODUCE_0102, PRODUCE_11, PRODUCE_27

LONGEST = 32_767
PATTERNED = ("kafka-configs", "strimzi")
"""Forms of quota files that are read by patterns; the others are JSON or YAML."""
CHEAP_S = 0.05
_TIMES = 3
UNITS = (
    "a", "0", "a0", "0a-", "abcdef-", "abcdefab-abcd-", "A", "g", "_", "-", ".", " ", "a ", " / ", "/",
    "/c/", "/clients/", ",", "=", ":", ";", "'", '"', "\\", '\\"', "%", "%a", "%41", "%2C", "+", "CN=",
    "CN=a,", "CN=a,B=", "CN%3Da%2CB%3D", ",B=c", "a,client-id=", "', client-id 'a", "&", "&a", "&amp;", "`",
    "*", "[", "]", "{", "}", "(", ")", "|", "#", "~", "$", "${", "%{", "http://", "www.", "://", ":1",
    "a:1", "[::1]", "<a>", "\t", "\x1b[", "\u00e4", "\u202e", "\U0001f600", ", correlationId=1",
    ", correlationId=1) -- {", "} -- {", ",listener:a", "{topic=a,partition_responses=[", "a-1=2,",
    " from connection ", "User:", "sasl", "secret", '"clientId":"', ',"', "SCRAM-SHA-256=salt=", "\x00",
    "1", "1.", "1e5",
)  # fmt: skip
"""What names are made of here: parts of every syntax that a pattern of ours looks for."""


def _line(line: bytes, *old: str) -> Callable[[str], object]:
    parser = RequestLogParser("UTC")

    def read(name: str) -> object:
        text = line
        for each in old:
            assert each.encode() in line
            text = text.replace(each.encode(), name.encode())
        return parser.parse(text)

    return read


def _json_line(line: bytes, *old: str) -> Callable[[str], object]:
    read = _line(line, *old)
    return lambda name: read(json.dumps(name, ensure_ascii=False)[1:-1])


def _family(name: str) -> object:
    return unstable_client_ids([IdSeen("user", name, 0, 1, 1)], 0, 10)


def _mbean(name: str) -> object:
    return parse_mbean_name(mbean_name("Produce", {"client-id": name}))


def _written(form: str) -> Callable[[str], object]:
    def write_and_read(name: str) -> object:
        return FORMATS[form].read(
            FORMATS[form].write({Entity(name, name): {QuotaKey.PRODUCER_BYTE_RATE: 1.0}})
        )

    return write_and_read


def _our_own(name: str) -> object:
    return line_filter(["ours"])(PRODUCE_V9.replace(b"checkout-svc", b"ours" + name.encode()))


def _found(form: str) -> Callable[[str], object]:
    text = FORMATS[form].write({Entity("placed"): {QuotaKey.PRODUCER_BYTE_RATE: 1.0}})
    return lambda name: (
        guess(text.replace("placed", name)),
        FORMATS[form].read(text.replace("placed", name)),
    )


READERS: dict[str, Callable[[str], object]] = {
    "families of client ids": _family,
    "owners and exempt patterns": lambda name: is_match(".*-.*-x?[0-9]+", name),
    "MBean of a name": _mbean,
    "MBean with a name": lambda name: parse_mbean_name(f"kafka.server:type=Produce,client-id={name}"),
    "sanitised name": desanitise,
    "entity": lambda name: parse_entity(f"users/{name}/clients/{name}"),
    "terminal": escape.terminal_text,
    "readable entity": escape.entity_text,
    "spreadsheet": escape.csv_text,
    "JSON": escape.harmless_json,
    "cut": lambda name: escape.cut(name, 40),
    "cut inside": lambda name: escape.cut_inside(name, 40),
    "cut apart": lambda name: escape.distinct_cuts(
        [name, f"{name}1", f"{name} / {name}", f"{name} / {name}2"], 20
    ),
    "Markdown": escaped,
    "file name": safe_name,
    "exporter page": lambda name: mbeans_of(
        f'kafka_server_Produce_byte_rate{{user="a",client_id="{name}"}} 1.5'
    ),
    "address": addresses,
    "unreadable line": lambda name: storable_text(name.encode("utf-8", "replace"), LONGEST),
    "lines of our own": lambda name: line_filter(["ours"])(
        PRODUCE_V9.replace(b"checkout-svc", b"ours" + name.encode())
    ),
    "JSON line": _json_line(PRODUCE_V9, "checkout-svc", "checkout"),
    "JSON line of a topic": _json_line(FETCH_V12, "orders"),
    "JSON line as it is": _line(PRODUCE_V9, "checkout-svc"),
    "text line": _line(PRODUCE_27, "shop", "alice"),
    "text line of a topic": _line(FETCH_27, "orders"),
    "text line of 1.1": _line(PRODUCE_11, "shop", "alice"),
    "text line of 0.10": _line(PRODUCE_0102, "shop"),
    "text line of 0.10 of a topic": _line(FETCH_0102, "orders"),
    "--user-clients": user_and_clients,
    **{f"{form}, written and read": _written(form) for form in PATTERNED},
    **{f"{form}, as it is": _found(form) for form in PATTERNED},
}
"""Functions of ours that see names, by what they are for."""


def cost_s(read: Callable[[str], object], name: str) -> float:
    """Time that a thread spends in a function for one name, s."""
    began_s = time.thread_time()
    with contextlib.suppress(ValueError, Unreadable, UserError):
        read(name)
    return time.thread_time() - began_s


def is_linear(read: Callable[[str], object], unit: str, length: int) -> bool:
    """Whether names made of this unit are cheap, or cost as much more as they are longer."""
    text = (unit * length).encode()
    long, short = (text[:end].decode("utf-8", "ignore") for end in (length, length // 4))
    if cost_s(read, long) < CHEAP_S:
        return True
    costs = [min(cost_s(read, name) for _ in range(_TIMES)) for name in (long, short)]
    return costs[0] < CHEAP_S or costs[0] < 8 * costs[1]


@pytest.mark.parametrize("length", [1_000, LONGEST])
@pytest.mark.parametrize("what", READERS)
def test_the_cost_of_a_name_grows_with_its_length_alone(what: str, length: int) -> None:
    # Names are cut at 1,000 columns for tables: what is slow below that is slow for each name of a page.
    assert [unit for unit in UNITS if not is_linear(READERS[what], unit, length)] == []
