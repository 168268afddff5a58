"""What the pages show below a command is what the command prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.references import metrics_page
from tests.site.shown_outputs import (
    CUT,
    NOT_RUN,
    checkout_with_tables,
    is_shown,
    output_of,
    shown_outputs,
)
from tests.support.places import ROOT

SHOWN = shown_outputs()
RUN = [one for one in SHOWN if one.command not in NOT_RUN]


@pytest.fixture(scope="module", autouse=True)
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with checkout_with_tables(tmp_path_factory.mktemp("checkout")) as folder:
        yield folder


@pytest.mark.parametrize("shown", RUN, ids=lambda one: f"{one.page.stem}: {one.command}")
def test_a_command_prints_what_its_page_shows(shown: tuple[Path, str, str]) -> None:
    _, command, output = shown
    printed = output_of(command)
    if not is_shown(printed, output):
        assert output == printed


def test_the_metrics_of_the_job_on_the_page_of_operating_are_those_that_it_declares() -> None:
    page = (ROOT / "kquota_spark" / "docs" / "operating.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(kquota_audit_\w+)` \| \w+ \| ([^|]*) \|", metrics_page(), re.MULTILINE)
    declared = {name: {*re.findall(r"`(\w+)`", labels)} for name, labels in rows}
    shown = re.findall(r"^(kquota_audit_\w+)\{(.*)\} [\d.]+$", page, re.MULTILINE)
    assert len(shown) == 7 and len(declared) == 20
    for name, labels in shown:
        assert {*re.findall(r"(\w+)=", labels)} == declared[name], name
    section = page[page.index("| metric, ") : page.index("Every metric has")]
    listed = {f"kquota_audit_{name}" for name in re.findall(r"`(\w+)`", section)}
    assert {*declared} <= listed


def test_the_commands_that_are_not_run_are_in_the_pages() -> None:
    assert len(RUN) > 20
    assert {*NOT_RUN} <= {one.command for one in SHOWN}


def test_the_readme_shows_parts_of_the_output_that_the_page_of_the_demo_has() -> None:
    def block(path: str) -> str:
        text = (ROOT / path).read_text(encoding="utf-8")
        part = text[text.index("<!-- demo output -->") : text.index("<!-- end of demo output -->")]
        return part.split("```text\n")[1].split("```")[0]

    whole, shown = block("kquota_spark/docs/tutorial.md"), block("README.md")
    parts = shown.split(f"{CUT}\n")
    assert len(parts) == 4 and all(part in whole for part in parts)
    assert is_shown(whole.replace(f"{CUT}\n", ""), f"{shown}{CUT}\n")


@pytest.mark.parametrize(
    ("whole", "shown", "is_it"),
    [
        ("a\nb\nc\n", "a\nb\nc\n", True),
        ("a\nb\nc\n", f"a\n{CUT}\nc\n", True),
        ("a\nb\nc\n", f"{CUT}\nb\n{CUT}\n", True),
        ("a\nb\nc\n", "a\nc\n", False),
        ("a\nb\nc\n", f"b\n{CUT}\nc\n", False),
        ("a\nb\nc\n", f"a\n{CUT}\nb\n", False),
        ("a\nb\nc\n", f"{CUT}\nc\n{CUT}\nb\n{CUT}\n", False),
        ("12 s behind\n", "9,999 s behind\n", True),
    ],
)
def test_a_page_shows_the_whole_output_or_parts_in_their_order(whole: str, shown: str, is_it: bool) -> None:
    assert is_shown(whole, shown) is is_it
