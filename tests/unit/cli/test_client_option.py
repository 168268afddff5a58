"""`--client-id` and `--client` are one option wherever a command names a client id."""

from __future__ import annotations

import pytest

from kquota_spark.cli.main import parser_for


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
