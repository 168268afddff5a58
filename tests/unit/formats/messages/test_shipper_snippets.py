"""`conf/shippers`: one for each tool whose envelope is known, and none that ships its own requests in a circle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kquota_spark.config.settings import Kafka, Ship
from kquota_spark.formats.messages.envelopes import KINDS
from tests.support.places import ROOT

SNIPPETS = sorted((ROOT / "conf" / "shippers").iterdir())


def test_there_is_one_for_each_tool() -> None:
    assert {file.stem for file in SNIPPETS} == set(KINDS) - {"auto", "raw", "json"}


@pytest.mark.parametrize("file", SNIPPETS, ids=lambda file: file.stem)
def test_a_snippet_fits_the_shipped_settings(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert Kafka().topic in text
    assert Kafka().bootstrap_servers in text
    assert "/var/log/kafka/kafka-request.log" in text
    # A shipper's own requests are in the log too: what it sends is by a client id that it leaves out.
    assert re.search(rf"client[._]id\W+{Ship().client_id}", text)
    assert f'"clientId":"({"|".join(Ship().exclude_client_ids)})"' in text
    if file.suffix in {".yml", ".yaml"}:
        assert isinstance(yaml.safe_load(text), dict)
