"""Options that a dataclass declares: each field is one option, with its value in the field."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from kquota_spark.cli.options import only
from kquota_spark.cli.own_options import add_own, option, reader_of, switch


@dataclass(frozen=True, slots=True)
class _Own:
    name: str | None = option("name", "a name", nargs="?")
    bundle: Path | None = option("--file", "a file", type=Path, metavar="FILE")
    top: int = option("--top", "how many", default=1, type=int, metavar="N")
    is_whole: bool = switch("--whole", "all of it")


def _given(*words: str) -> _Own:
    parser = argparse.ArgumentParser()
    add_own(parser, _Own)
    return reader_of(_Own)(parser.parse_args(words))


def test_without_options_the_values_are_the_defaults() -> None:
    assert _given() == _Own(name=None, bundle=None, top=1, is_whole=False)


def test_a_field_has_the_value_of_its_option_whatever_the_option_is_called() -> None:
    given = _given("alice", "--file", "a.zip", "--top", "3", "--whole")
    assert given == _Own(name="alice", bundle=Path("a.zip"), top=3, is_whole=True)


def test_some_options_of_a_bucket_keep_their_names_and_their_order() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    only(type="", client_id="the client")(parser)
    assert [action.option_strings for action in parser._actions] == [["--type"], ["--client-id", "--client"]]
    assert [action.help for action in parser._actions] == ["only this quota type", "the client"]


def test_a_parser_that_changes_the_help_of_an_option_changes_it_for_no_other() -> None:
    add = only(client_id="")
    first, second = argparse.ArgumentParser(add_help=False), argparse.ArgumentParser(add_help=False)
    add(first)
    first._actions[0].help = "with --episodes only"
    add(second)
    assert second._actions[0].help == "only this client id, likewise"
