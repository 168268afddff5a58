"""The broker that a message is from: a number, or a name that the settings know; nothing is guessed."""

from __future__ import annotations

import pytest

from kquota_spark.formats.messages.messages import BrokerIds, LogMessages, MessageFormat

IDS = BrokerIds({"kafka-1.example": 1, "007": 8, "k\u00e4fka": 3}, r"(?:log|audit)-broker-([\w.-]+)")


@pytest.mark.parametrize(
    ("name", "broker_id"),
    [
        (b"0", 0), (b"17", 17), (b"999999999", 999_999_999), (b"kafka-1.example", 1), ("k\u00e4fka".encode(), 3),
        (b"007", 8), (b"008", 8),  # the settings come before the number
        (b"", None), (b"kafka-1", None), (b"kafka-1.example.", None), (b"KAFKA-1.example", None), (b"kafka-17", None),
        (b"-1", None), (b"+1", None), (b" 1", None), (b"1\n", None), (b"1.0", None), (b"1_0", None),
        (b"9999999999", None), ("\u0661".encode(), None), (b"\xff", None),
    ],
)  # fmt: skip
def test_ids_and_names(name: bytes, broker_id: int | None) -> None:
    for _ in range(2):  # found, then remembered
        assert IDS.of_name(name) == broker_id


def test_a_host_has_to_be_named_in_the_settings() -> None:
    assert [IDS.of_host(host) for host in (b"kafka-1.example", b"kafka-2.example", b"2")] == [1, None, None]


@pytest.mark.parametrize(
    ("topic", "named"),
    [
        ("log-broker-3", b"3"), ("audit-broker-kafka-1.example", b"kafka-1.example"), ("log-broker-", None),
        ("my-log-broker-3", None), ("log-broker-3 x", None),
    ],
)  # fmt: skip
def test_the_broker_in_the_name_of_a_topic(topic: str, named: bytes | None) -> None:
    assert IDS.in_topic(topic) == named
    assert BrokerIds({}).in_topic(topic) is None


def test_a_group_that_is_not_there() -> None:
    assert BrokerIds({}, "log(-[0-9]+)?").in_topic("log") is None


def test_what_is_remembered_stays_small() -> None:
    ids = BrokerIds({"a": 1})
    assert all(ids.of_name(b"%d" % number) == number for number in range(10_500))
    assert ids.of_name(b"a") == 1
    assert len(ids._known) <= 10_000


def test_the_reason_names_the_places_that_were_asked() -> None:
    expected = {
        ("header",): "header broker_id",
        ("header", "key"): "header broker_id or key",
        ("header", "key", "field", "topic"): "header broker_id, key or a field of the envelope",
    }
    for sources, places in expected.items():
        reason = LogMessages(MessageFormat(broker_from=sources)).no_broker  # type: ignore[arg-type]
        assert reason == f"no broker id in {places} (expected a number, or a name in kafka.broker_ids)"
