"""Numbers have one grammar wherever a person writes one: decimal ASCII digits, a fraction, an exponent."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from kquota_spark.config.loader import load_settings
from kquota_spark.enforcement.policies import load_policies
from kquota_spark.errors import UserError
from kquota_spark.formats.exchange.registry import FORMATS
from kquota_spark.formats.quota_files.quota_file import finite_number, read_quota_file

ODD = [
    "1_000",
    "\u0661\u0660\u0660\u0660",
    "\uff11\uff10\uff10\uff10",
    "0x3e8",
    "1:30",
    "010",
    " 1000",
    "1000 ",
    "1e3_0",
]
RPK = """{"quotas": [{"entity": [{"name": "a", "type": "user"}],
"values": [{"key": "producer_byte_rate", "value": "%s"}]}]}"""


@pytest.mark.parametrize(
    ("text", "number"),
    [("1000", 1000.0), ("1e3", 1000.0), ("0.5", 0.5), (".5", 0.5), ("-2", -2.0), ("+1.50", 1.5), ("0", 0.0)],
)
def test_decimal_numbers_are_read(text: str, number: float) -> None:
    assert finite_number(text) == number


@pytest.mark.parametrize("text", ODD)
def test_other_numbers_are_refused_on_every_road(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finite_number(text) is None
    alter = ["alter", "--name", "user=a", "--add", f"producer_byte_rate={text}", "--zookeeper", "z:1"]
    if text == text.strip():  # blanks around a value of --add are not part of it
        assert main(alter) == 1
        assert (
            "expected a whole number of bytes per second, above 0, e.g. 2000000 or 2MB/s; nothing was sent"
            in capsys.readouterr().err
        )
    override = ["--key", "producer_byte_rate", "--value", text, "--for", "1h", "--reason", "r"]
    for command, expected in (
        (
            ["override", "set", "--user", "a", *override],
            "expected a whole number of bytes per second, above 0",
        ),
        (["kfk", "create", "--user", "a", "--produce-rate", text, "--kafka", "k"], "expected a number"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert (ended.value.code, expected in capsys.readouterr().err) == (2, True)
    with pytest.raises(ValueError, match="producer_byte_rate"):
        FORMATS["rpk"].read(RPK % text)


@pytest.mark.parametrize("text", [text for text in ODD if text == text.strip()])
def test_other_numbers_of_yaml_are_refused_by_their_key(text: str, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(f"- {{user: a, type: producer_byte_rate, value: {text}}}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"\[0\]\.value: '.*', expected a whole number of bytes per second"):
        read_quota_file(path)
    path.write_text(
        f"guards: {{bounds: {{producer_byte_rate: {{floor: {text}, ceiling: 2}}}}}}\n", encoding="utf-8"
    )
    with pytest.raises(
        UserError, match=r"guards\.bounds\.producer_byte_rate\.floor: '.*', expected a number"
    ):
        load_policies(path)
    path.write_text(f"metrics: {{port: {text}}}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"metrics\.port: '.*', expected a whole number"):
        load_settings(path)
