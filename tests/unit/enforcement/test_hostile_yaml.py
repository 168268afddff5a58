"""Hostile YAML of 400 KB is answered within 2 s, with one line that says what is wrong (F48)."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kquota_spark.config.loader import load_settings
from kquota_spark.enforcement.policies import load_policies
from kquota_spark.errors import UserError
from kquota_spark.formats.exchange.documents import read_yaml
from kquota_spark.formats.quota_files.quota_file import read_quotas

_SIZE = 400_000
_NUMBERS = {
    "base 60": "1" + ":59" * (_SIZE // 3),
    "base 60 with a fraction": "1" + ":59" * (_SIZE // 3) + ".5",
    "decimal": "9" * _SIZE,
    "hexadecimal": "0x" + "f" * _SIZE,
    "binary": "0b" + "1" * _SIZE,
    "octal": "0" + "7" * _SIZE,
}


@contextmanager
def _at_once() -> Iterator[None]:
    """Within 2 s of CPU; the collector passes over what thousands of other tests have left in this process."""
    gc.freeze()
    began_s = time.process_time()
    try:
        yield
        assert time.process_time() - began_s < 2
    finally:
        gc.unfreeze()


def _refusal(read: Callable[[Path], object], text: str, path: Path) -> str:
    path.write_text(text, encoding="utf-8")
    with _at_once(), pytest.raises(UserError) as refused:
        read(path)
    return str(refused.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("form", _NUMBERS)
def test_a_long_number_in_the_settings_is_refused_at_once(form: str, tmp_path: Path) -> None:
    number = _NUMBERS[form]
    refusal = _refusal(load_settings, f"\ncluster_id: {number}\n", tmp_path / "kquota.yaml")
    assert refusal == f"line 2: a number of {len(number)} characters, expected at most 1000"


@pytest.mark.parametrize("form", _NUMBERS)
def test_a_long_number_in_a_file_of_quotas_is_refused_at_once(form: str, tmp_path: Path) -> None:
    text = f"- {{user: a, type: producer_byte_rate, value: {_NUMBERS[form]}}}\n"
    assert _refusal(read_quotas, text, tmp_path / "quotas.yaml").startswith("[0].value: ")


@pytest.mark.parametrize("form", _NUMBERS)
def test_a_long_number_in_a_file_of_another_tool_is_no_number(form: str) -> None:
    with _at_once():
        assert read_yaml(f"a: {_NUMBERS[form]}\n") == [{"a": _NUMBERS[form]}]


def test_a_number_of_1000_characters_is_still_read() -> None:
    assert read_yaml(f"a: {'9' * 1_000}\n") == [{"a": 10**1_000 - 1}]


@pytest.mark.parametrize("number", ["9" * 400, "1" + ":1" * 190 + ".5"])
def test_a_number_beyond_all_doubles_is_one_line(number: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    text = f"guards: {{min_certain_percent: {number}}}\n"
    refusal = _refusal(load_policies, text, path)
    assert refusal.startswith(("guards.min_certain_percent: 9999", "guards.min_certain_percent: '1:1:1"))


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            "cluster_id: [" + "a," * (_SIZE // 2) + "]\n",
            "line 1: more than 100,000 keys and values, expected a settings file",
        ),
        ("cluster_id: [" + "a," * 99_997 + "]\n", "cluster_id: a list, expected a text"),
        ("cluster_id: " + "[" * 60 + "]" * 60, "line 1: nested deeper than 50"),
        ("".join(" " * depth + "a:\n" for depth in range(880)), "line 51: nested deeper than 50"),
        ("[" * (_SIZE // 2) + "]" * (_SIZE // 2), "line 1: nested deeper than 50"),
    ],
    ids=["wide", "as wide as may be", "deep flow", "deep block", "200,000 deep"],
)  # fmt: skip
def test_wide_and_deep_settings_are_refused_at_once(text: str, refusal: str, tmp_path: Path) -> None:
    assert _refusal(load_settings, text, tmp_path / "kquota.yaml") == refusal


def test_of_many_unknown_keys_the_first_20_are_named(tmp_path: Path) -> None:
    text = "".join(f"k{number}: \n" for number in range(45_000))  # 399 KB
    lines = _refusal(load_settings, text, tmp_path / "kquota.yaml").splitlines()
    assert len(lines) == 21
    assert lines[19].startswith(f"{tmp_path / 'kquota.yaml'}: k19: unknown key")
    assert lines[20] == f"{tmp_path / 'kquota.yaml'}: 44980 more unknown keys"
