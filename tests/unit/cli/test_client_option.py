"""`--client-id` and `--client` are one option wherever a command names a client id."""

from __future__ import annotations

import pytest

from kquota_spark.cli.chosen.entity_options import asked_entity
from kquota_spark.cli.main import parser_for
from kquota_spark.model.quotas.entities import Entity


@pytest.mark.parametrize("name", ["--client-id", "--client"])
@pytest.mark.parametrize(
    "words",
    [
        "violations", "decisions", "usage", "top", "throttled --episodes", "timeline", "explain", "resolve",
        "override set --key producer_byte_rate --value 1 --for 2h --reason x", "exempt add", "exempt remove",
        "quotas disable", "quotas enable",
    ],
)  # fmt: skip
def test_both_names_give_the_client_id(words: str, name: str) -> None:
    given = [*words.split(), name, "etl"]
    assert parser_for(given).parse_args(given).client_id == "etl"


@pytest.mark.parametrize("name", ["--client-id", "--client"])
@pytest.mark.parametrize("command", ["describe", "alter"])
def test_both_names_give_the_entity(command: str, name: str) -> None:
    given = [command, name, "etl"]
    assert asked_entity(parser_for(given).parse_args(given)) == Entity(client_id="etl")
