"""Principals are split where Kafka's SecurityUtils splits them: at the first colon."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.model.quotas.principals import Principal, parse_principal


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("User:alice", Principal("User", "alice")),
        ("User:ANONYMOUS", Principal("User", "ANONYMOUS")),
        ("User:CN=app-1,OU=x", Principal("User", "CN=app-1,OU=x")),
        ("User:team:pay+ments@corp", Principal("User", "team:pay+ments@corp")),
        ("Group:etl", Principal("Group", "etl")),
        ("User:", Principal("User", "")),
        (":x", Principal("", "x")),
        ("User: a b ", Principal("User", " a b ")),
        ("User:zoë", Principal("User", "zoë")),
    ],
)
def test_principals_both_ways(text: str, principal: Principal) -> None:
    assert parse_principal(text) == principal
    assert str(principal) == text


@pytest.mark.parametrize("text", ["", "alice", "CN=app-1"])
def test_a_text_without_a_colon_is_no_principal(text: str) -> None:
    with pytest.raises(ValueError, match="is no principal, expected type:name"):
        parse_principal(text)


@settings(deadline=None, print_blob=True)
@given(st.text(st.characters(exclude_characters=":"), max_size=8), st.text(max_size=12))
def test_principal_round_trip(kind: str, name: str) -> None:
    assert parse_principal(str(Principal(kind, name))) == Principal(kind, name)
