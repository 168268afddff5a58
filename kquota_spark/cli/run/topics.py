"""`kquota help`: the pages of the documentation, which are in the package, on the terminal."""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import sys
from importlib.resources import files
from typing import Any

from kquota_spark.cli.text.page import has_colour
from kquota_spark.cli.text.terminal_width import columns_of
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text

_MOST_COLUMNS = 100
"""Prose in longer lines is hard to read."""


def add_commands(commands: Any) -> None:
    """Add `help`."""
    parser = commands.add_parser("help")
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="name of a page")
    parser.set_defaults(run=run_help)


def run_help(options: argparse.Namespace) -> int:
    """Show a page, or what pages there are."""
    if options.topic is None:
        _show(_list_text())
        return 0
    # rich takes a tenth of a second to load: a wrong topic is told at once.
    markdown = topic_markdown(options.topic.removesuffix(".md"))
    from kquota_spark.cli.text.topic_page import page_text

    columns = min(_MOST_COLUMNS, columns_of())
    _show(page_text(markdown, columns, has_colour=has_colour(sys.stdout)))
    return 0


def topics() -> dict[str, str]:
    """The pages by name, each with its title."""
    pages = (
        entry for entry in files("kquota_spark").joinpath("docs").iterdir() if entry.name.endswith(".md")
    )
    found = {page.name.removesuffix(".md"): page.read_text(encoding="utf-8") for page in pages}
    return {name: found[name].partition("\n")[0].removeprefix("# ") for name in sorted(found)}


def topic_markdown(topic: str) -> str:
    """The text of a page.

    Raises:
        UserError: there is no such page.
    """
    known = topics()
    if topic not in known:
        near = difflib.get_close_matches(topic, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "kquota help lists all"
        raise UserError(f"no help on {terminal_text(topic)}: {hint}")
    return files("kquota_spark").joinpath("docs", f"{topic}.md").read_text(encoding="utf-8")


def _list_text() -> str:
    known = topics()
    width = max(map(len, known))
    lines = [f"  {name:<{width}}  {title}" for name, title in known.items()]
    return (
        "\n".join(
            ["kquota help TOPIC", "", *lines, "", "kquota COMMAND --help tells the options of a command"]
        )
        + "\n"
    )


def _show(text: str) -> None:
    """Print it; on a terminal that it does not fit, through a pager."""
    encoding = sys.stdout.encoding or "utf-8"
    possible = text.encode(encoding, "backslashreplace").decode(encoding)
    if (
        sys.stdout.isatty()
        and sys.stdin.isatty()
        and possible.count("\n") >= shutil.get_terminal_size().lines
    ):
        import pydoc

        # Colours as they are, and the page stays on the screen; who has set LESS knows better.
        os.environ.setdefault("LESS", "RX")
        pydoc.pager(possible)
    else:
        sys.stdout.write(possible)
