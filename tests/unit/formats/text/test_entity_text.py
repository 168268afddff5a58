"""Canonical names of entities for people: decoded, and none looks like another one."""

from __future__ import annotations

import pytest

from kquota_spark.formats.text.escape import entity_text


@pytest.mark.parametrize(
    ("canonical", "shown"),
    [
        ("users/alice/clients/<default>", "users/alice/clients/<default>"),
        ("users/CN%3Dorders%2COU%3Dpay%20roll", "users/CN=orders,OU=pay roll"),
        ("users/a%2Fclients%2Fb", "users/a%2Fclients%2Fb"),
        ("users/%3Cdefault%3E", "users/%3Cdefault%3E"),
        ("clients/100%2525", "clients/100%2525"),  # the client id 100%25
        ("users/M%C3%BCller", "users/Müller"),
        ("users/%1B%5B31mred", "users/\\x1b[31mred"),
        ("users/%FFx", "users/\ufffdx"),
        ("ips/fe80::1", "ips/fe80::1"),
        ("u/CN%3Da/c/*", "u/CN=a/c/*"),
    ],
)
def test_names_are_decoded_and_stay_distinct(canonical: str, shown: str) -> None:
    assert entity_text(canonical) == shown
