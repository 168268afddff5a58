"""Answers of the Admin API that are errors or only half of one: nothing is deleted by them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.errors import UserError
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.quotas.ledger import Ledger
from kquota_spark.quotas.watched_sources import FOLLOWED, Answer

SETTINGS = Settings(quotas=Quotas(source="admin", poll_interval=Duration(1)))


def entry(key: str, value: float, **parts: str | None) -> SimpleNamespace:
    entity = [
        SimpleNamespace(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in parts.items()
    ]
    return SimpleNamespace(entity=entity, values=[SimpleNamespace(key=key, value=value)])


def answer(*entries: SimpleNamespace, error_code: int = 0, is_null: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        error_code=error_code, error_message="told so", entries=None if is_null else list(entries)
    )


WHOLE = answer(
    entry("producer_byte_rate", 5.0, user="alice"),
    entry("consumer_byte_rate", 6.0, user=None, client_id="etl"),
    entry("connection_creation_rate", 7.0, ip=None),
    entry("a_key_of_the_future", 8.0, user="bob"),
    entry("producer_byte_rate", 9.0, group="of the future"),
)


def source(monkeypatch: pytest.MonkeyPatch, *answers: SimpleNamespace) -> Callable[[], Answer | None]:
    """Polls a source whose brokers give these answers; the clock goes on by a second with each look."""
    given = iter(answers)
    clock = iter(range(1_000, 99_000, 1_000))

    def ask(self: QuotaAdmin, filters: Any) -> list[Any]:
        self.has_zookeeper = True  # no lag of the metadata
        return [next(given)]

    monkeypatch.setattr(QuotaAdmin, "_ask", ask)
    made, recorded = FOLLOWED["admin"](SETTINGS, lambda: next(clock)), Ledger([], {})
    return lambda: made.changes(recorded)


def test_users_client_ids_and_ips_are_read_and_what_is_unknown_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = source(monkeypatch, WHOLE)()
    assert found is not None
    assert found.known_through_ms == 1_000  # when it was asked, not when it was answered
    assert found.edits.changes == [
        QuotaChange(IpEntity(DEFAULT), IpQuotaKey.CONNECTION_CREATION_RATE, 7.0, None, 0, 2_000, 2_000),
        QuotaChange(Entity(DEFAULT, "etl"), QuotaKey.CONSUMER_BYTE_RATE, 6.0, None, 0, 2_000, 2_000),
        QuotaChange(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE, 5.0, None, 0, 2_000, 2_000),
    ]


def test_errors_and_half_answers_are_no_deletion_and_are_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = [answer(error_code=7, is_null=True), answer(is_null=True), answer(error_code=31)]
    poll = source(monkeypatch, WHOLE, *wrong, WHOLE, answer(*WHOLE.entries[1:]))
    poll()
    assert [poll() for _ in wrong] == [None] * 3
    assert "did not describe the quotas: error 7 (told so)" in caplog.text
    # Asked at 6,000: nothing has changed, and nothing in between was missed.
    assert poll() == Answer(known_through_ms=6_000)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    last = poll()
    assert last is not None
    # An entity that is not in a whole answer has no quota any more, since some time after 6,000.
    assert last.edits.changes == [
        QuotaChange(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE, None, 5.0, 6_000, 9_000, 9_000)
    ]


def test_an_address_that_is_none_is_named_as_the_setting_that_it_is() -> None:
    with pytest.raises(
        UserError, match=r"^kafka\.bootstrap_servers: 'a:1,,b:2', expected host:port,host:port$"
    ):
        QuotaAdmin("a:1,,b:2", {}, timeout_ms=1)
