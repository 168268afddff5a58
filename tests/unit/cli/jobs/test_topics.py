"""`kquota help`: every page of the package is readable on a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kquota_spark.cli.jobs.topics import page_text, topic_markdown, topics, with_topics
from kquota_spark.cli.main import main
from kquota_spark.formats.text.escape import width
from tests.support.logs.replayed_captures import run
from tests.support.places import ROOT

PAGES = {page.stem: page for page in (ROOT / "kquota_spark" / "docs").glob("*.md")}


def test_the_list_has_every_page_with_its_title() -> None:
    code, out, err = run(["help"])
    assert (code, err) == (0, "")
    assert {*topics()} == {*PAGES} == {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert "  operating " in out and "Operating the audit" in out
    assert max(map(width, out.splitlines())) <= 100


@pytest.mark.parametrize("topic", PAGES)
def test_a_page_fits_and_is_text_without_markup(topic: str) -> None:
    code, out, err = run(["help", topic])
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == topics()[topic] == PAGES[topic].read_text("utf-8").splitlines()[0].removeprefix("# ")
    assert max(map(width, lines)) <= 100
    assert "\x1b" not in out
    # These two pages show the Markdown of a comment.
    shows_markdown = topic in {"migrations", "review"}
    assert shows_markdown or not any(mark in out for mark in ("](", "```", "**"))
    assert shows_markdown or not re.search(
        r"</?(?:a|b|br|p|table|td|tr|div|details|summary|img|sub|sup)\b[^>]*>", out
    )
    # Nothing is cut: every word of the code of the page is there, though a line of it may be broken.
    code_lines = re.findall(
        r"^ *```\w*\n(.*?)^ *```", PAGES[topic].read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    unbroken = "".join(out.split())
    assert all("".join(block.split()) in unbroken for block in code_lines)


def test_the_name_of_the_file_is_a_topic_too() -> None:
    assert run(["help", "quotas.md"])[1] == run(["help", "quotas"])[1]


def test_a_topic_that_is_not_there_is_told_with_the_one_that_was_meant() -> None:
    assert run(["help", "operatin"]) == (1, "", "kquota: no help on operatin: did you mean operating?\n")
    assert run(["help", "\x1b[31m"])[2] == (
        "kquota: no help on \\x1b[31m: kquota help lists all pages, kquota --help all commands\n"
    )


def shown_help(*words: str) -> str:
    """What `kquota help` prints and ends the program by, as --help does."""
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as ended:
        main(["help", *words])
    assert ended.value.code == 0
    return out.getvalue()


def test_a_command_is_a_topic_too_and_so_is_one_below_it() -> None:
    assert shown_help("findings").startswith("usage: kquota findings ")
    assert shown_help("enforce", "plan").startswith("usage: kquota enforce plan ")
    assert shown_help("quotas", "enable").startswith("usage: kquota quotas enable ")
    code, page, _ = run(["help", "serve"])
    assert code == 0 and page.endswith("\nThe command of this name: kquota serve --help\n")
    assert run(["help", "findngs"]) == (1, "", "kquota: no help on findngs: did you mean findings?\n")


def test_links_are_topics_paths_and_addresses() -> None:
    page = (
        "see [verdicts.md](verdicts.md#limits), [the law](model.md), [conf/x.yaml](../../conf/x.yaml), "
        "[here](#below), ![a report](report.png) and [Kafka](https://kafka.apache.org)\n```text\n[a](b.md)\n```"
    )
    assert with_topics(page) == (
        "see `kquota help verdicts`, the law (`kquota help model`), conf/x.yaml, here, a report (report.png) and "
        "Kafka (https://kafka.apache.org)\n```text\n[a](b.md)\n```"
    )


def test_code_stands_as_it_is_and_a_table_breaks_what_does_not_fit() -> None:
    page = "# Title\n\ntext\n\n```sh\na  b\n  c\n```\n\n| x | y |\n| --- | ---: |\n| abcdefghijkl | 1 |\n"
    assert page_text(page, 12, has_colour=False) == (
        "Title\n\ntext\n\n    a  b\n      c\n\n x        y\n ──────────\n abcdefg  1\n hijkl\n"
    )
    assert "\x1b[" in page_text(page, 12, has_colour=True)


def test_a_terminal_of_another_encoding_gets_escapes_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    from kquota_spark.cli.main import main

    assert main(["help", "reading"]) == 0
    sys.stdout.flush()
    assert b"\\u251c" in raw.getvalue()  # the stroke of a tree


def test_a_pager_shows_a_long_page_on_a_terminal_only(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\ncat > "{tmp_path}/paged"\n', encoding="utf-8")
    pager.chmod(0o755)
    command = [sys.executable, "-m", "kquota_spark.cli.main", "help", "operating"]
    environment = {**os.environ, "PAGER": str(pager), "TERM": "xterm", "LINES": "20", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    piped = subprocess.run(
        command, env=environment, capture_output=True, timeout=120, check=True
    ).stdout.decode()
    assert piped.splitlines()[0] == topics()["operating"] and not (tmp_path / "paged").exists()
    main_end, terminal = pty.openpty()
    try:
        subprocess.run(
            command,
            env=environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            timeout=120,
            check=True,
        )
    finally:
        os.close(terminal)
        os.close(main_end)
    paged = (tmp_path / "paged").read_text("utf-8")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", paged)
    assert plain != paged and plain.splitlines()[0].rstrip() == topics()["operating"]
    assert max(map(width, plain.splitlines())) <= 80


def test_a_page_is_the_file_of_the_package() -> None:
    assert topic_markdown("model") == PAGES["model"].read_text(encoding="utf-8")
