"""Patterns meet names that clients choose: no name keeps the enforcer busy (D11 of the review, F45)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kquota_spark.enforce.guard_settings import Exempt, GuardSettings
from kquota_spark.enforcement.policies import load_policies
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity

_CATASTROPHIC = r"(\w+-?)*svc"
_NAME = "a" * 26 + "!"  # 27 characters; an engine that goes back tries 2^26 ways to cut the 26


def test_a_name_of_27_characters_is_compared_within_milliseconds() -> None:
    took_s = []
    for _ in range(3):  # the collector may come between
        began_s = time.process_time()
        assert Exempt(patterns=(_CATASTROPHIC,)).holds(Entity(_NAME)) is None
        assert GuardSettings(owners={"terraform": (_CATASTROPHIC,)}).owner_of(Entity(_NAME)) is None
        took_s.append(time.process_time() - began_s)
    assert min(took_s) < 0.1
    # Control: the pattern does match what it is for.
    assert Exempt(patterns=(_CATASTROPHIC,)).holds(Entity("pay-svc")) == _CATASTROPHIC


@pytest.mark.parametrize(("length", "found"), [(32_767, ".*"), (32_768, None)])
def test_a_name_that_the_protocol_cannot_carry_matches_nothing(length: int, found: str | None) -> None:
    assert Exempt(patterns=(".*",)).holds(Entity("a" * length)) == found


def test_a_name_that_is_no_utf_8_is_compared_too() -> None:
    assert Exempt(patterns=("mm-.*",)).holds(Entity("mm-\udc80")) == "mm-.*"


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(?=a)b", "is no regular expression (invalid perl operator: (?=)"),
        ("(a)\\\\1", "is no regular expression (invalid escape sequence: \\1)"),
        ("(", "is no regular expression (missing ): ()"),
        ("a" * 1_001, "has 1001 characters, expected at most 1000"),
    ],
)
def test_a_pattern_that_is_not_linear_or_too_long_is_one_line(
    pattern: str, problem: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f'exempt: {{patterns: ["{pattern}"]}}\n')
    with pytest.raises(UserError) as refused:
        load_policies(path)
    shown = pattern.replace("\\\\", "\\")[:60]
    assert str(refused.value) == f"{path}: exempt.patterns[0]: {shown!r} {problem}"
    assert capfd.readouterr().err == ""  # the engine itself writes nothing
