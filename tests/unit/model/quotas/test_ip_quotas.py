"""Connections are limited by their address, however it is spelled, else by the default, else not at all."""

from __future__ import annotations

import pytest

from kquota_spark.model.quotas.entities import DEFAULT, IpEntity
from kquota_spark.model.quotas.ip_quotas import IpResolution, by_address, resolve_ip

LIMITS = {
    by_address(IpEntity(name)): limit
    for name, limit in [("10.0.0.1", 5), ("0:0:0:0:0:0:0:1", 7), ("10.0.0.2", 0), ("gate.example.org", 9)]
}
DEFAULTS = {IpEntity(DEFAULT): 20}


def test_an_address_has_its_own_limit_before_the_default() -> None:
    assert resolve_ip("10.0.0.1", (LIMITS | DEFAULTS).get) == IpResolution(IpEntity("10.0.0.1"), 5)
    assert resolve_ip("10.0.0.9", (LIMITS | DEFAULTS).get) == IpResolution(IpEntity(DEFAULT), 20)


def test_an_address_that_nothing_limits_is_unlimited() -> None:
    assert resolve_ip("10.0.0.9", LIMITS.get) == IpResolution(None, None)


def test_a_limit_of_zero_is_a_limit() -> None:
    assert resolve_ip("10.0.0.2", (LIMITS | DEFAULTS).get) == IpResolution(IpEntity("10.0.0.2"), 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::A", "2001:db8:0:0:0:0:0:a"),
        ("[::1]", "::1"),
        ("fe80::1%2", "fe80::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:0A00:1", "10.0.0.1"),
    ],
)
def test_spellings_of_one_address_are_one(one: str, other: str) -> None:
    # InetAddress.getByName(one).equals(InetAddress.getByName(other)) is true in Java 17.
    assert by_address(IpEntity(one)) == by_address(IpEntity(other))
    assert resolve_ip(one, {by_address(IpEntity(other)): 3}.get).limit == 3


@pytest.mark.parametrize(
    "name", ["gate.example.org", "%3A%3A1", "10.0.0.1 ", "10.0.0.1%2", "[10.0.0.1]", "127.1"]
)
def test_a_name_is_not_an_address(name: str) -> None:
    assert by_address(IpEntity(name)) == IpEntity(name)
    with pytest.raises(ValueError):
        resolve_ip(name, LIMITS.get)


def test_the_default_has_no_address() -> None:
    assert by_address(IpEntity(DEFAULT)) == IpEntity(DEFAULT)
