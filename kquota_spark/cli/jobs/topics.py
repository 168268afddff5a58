"""`kquota help`: shows the pages of the documentation, which are in the package, on the terminal."""

from __future__ import annotations

import argparse
import difflib
import io
import os
import re
import shutil
import sys
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

from kquota_spark.cli.command_groups import all_commands, module_of
from kquota_spark.cli.text.page import columns_of, encodable, has_colour
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text

if TYPE_CHECKING:
    from rich.markdown import Markdown

COMMANDS = {
    "help": (
        "help",
        "read the documentation: a page, or without a topic the list of all",
        "kquota help",
        "kquota help tutorial",
    ),
}

_MOST_COLUMNS = 100
"""Maximum columns of a page: prose in longer lines is hard to read."""
_LINK = re.compile(r"!?\[([^\]]+)\]\(([^)\s]+)\)")
_PAGE = re.compile(r"(?:[\w./-]*/)?([\w-]+)\.md(?:#.*)?")
_INDENT = 4
_BLANK_LINES = re.compile(r"\n{3,}")
_FENCE = re.compile(r"^ *```")


def add_commands(commands: Any) -> None:
    """Add `help`."""
    parser = commands.add_parser("help")
    parser.add_argument(
        "topic", nargs="*", metavar="TOPIC", help="name of a page, or a command; nothing lists all pages"
    )
    parser.set_defaults(run=run_help)


def run_help(options: argparse.Namespace) -> int:
    """Show a page, the help of a command, or the list of pages.

    Raises:
        UserError: there is no such page and no such command.
        SystemExit: the help of a command was shown, or it has no such subcommand.
    """
    if not options.topic:
        _show(_list_text())
        return 0
    first, *below = options.topic
    name = first.removesuffix(".md")
    is_command = module_of(name) is not None
    if is_command and (below or name not in topics()):
        from kquota_spark.cli.main import parser_for

        parser_for([name]).parse_args([name, *below, "--help"])
    markdown = topic_markdown(" ".join((name, *below)))
    columns = min(_MOST_COLUMNS, columns_of())
    end = f"\nThe command of this name: kquota {name} --help\n" if is_command else ""
    _show(page_text(markdown, columns, has_colour=has_colour(sys.stdout)) + end)
    return 0


def topics() -> dict[str, str]:
    """The pages by name, each with its title."""
    pages = (
        entry for entry in files("kquota_spark").joinpath("docs").iterdir() if entry.name.endswith(".md")
    )
    found = {page.name.removesuffix(".md"): page.read_text(encoding="utf-8") for page in pages}
    return {name: found[name].partition("\n")[0].removeprefix("# ") for name in sorted(found)}


def topic_markdown(topic: str) -> str:
    """The Markdown of a page.

    Raises:
        UserError: there is no such page.
    """
    known = topics()
    if topic not in known:
        commands = [command.name for command in all_commands()]
        near = difflib.get_close_matches(topic, [*known, *commands], n=1)
        hint = (
            f"did you mean {near[0]}?" if near else "kquota help lists all pages, kquota --help all commands"
        )
        raise UserError(f"no help on {terminal_text(topic)}: {hint}")
    return files("kquota_spark").joinpath("docs", f"{topic}.md").read_text(encoding="utf-8")


def _list_text() -> str:
    known = topics()
    width = max(map(len, known))
    lines = "".join(f"  {name:<{width}}  {title}\n" for name, title in known.items())
    return f"kquota help TOPIC\n\n{lines}\nkquota help COMMAND shows the options of a command\n"


def _show(text: str) -> None:
    """Print a text; a text that does not fit the terminal goes through a pager."""
    possible = encodable(text, sys.stdout.encoding or "utf-8")
    is_terminal = sys.stdout.isatty() and sys.stdin.isatty()
    if is_terminal and possible.count("\n") >= shutil.get_terminal_size().lines:
        import pydoc

        # Keep colours, and keep the page on the screen at the end. An existing LESS takes precedence.
        os.environ.setdefault("LESS", "RX")
        pydoc.pager(possible)
    else:
        sys.stdout.write(possible)


def page_text(markdown: str, columns: int, *, has_colour: bool) -> str:
    """A page of the package with headings, code and tables; no line is longer than `columns`."""
    # Importing rich takes a tenth of a second. Import it late, so that a wrong topic is reported at once.
    from rich.console import Console
    from rich.theme import Theme

    # Write to memory: the encoding of the terminal may lack some characters.
    console = Console(
        file=io.StringIO(),
        width=columns,
        force_terminal=has_colour,
        color_system="standard" if has_colour else None,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        # Rich's own theme puts code on black, which light terminals do not have.
        theme=Theme({"markdown.code": "cyan"}),
    )
    with console.capture() as capture:
        console.print(_markdown(with_topics(markdown)))
    text = "\n".join(line.rstrip() for line in capture.get().split("\n"))
    return _BLANK_LINES.sub("\n\n", text).strip("\n") + "\n"


def with_topics(markdown: str) -> str:
    """The page with links as text: another page becomes the name of its topic, a file of the checkout its path."""
    lines, is_code = [], False
    for line in markdown.split("\n"):
        is_code ^= _FENCE.match(line) is not None
        lines.append(line if is_code else _LINK.sub(_linked, line))
    return "\n".join(lines)


def _linked(link: re.Match[str]) -> str:
    text, target = link.groups()
    page = _PAGE.fullmatch(target)
    if page is not None and page.group(1) not in ("README", "CHANGELOG"):
        topic = f"`kquota help {page.group(1)}`"
        is_named = text.strip("`").removesuffix(".md") == page.group(1)
        return topic if is_named else f"{text} ({topic})"
    path = target.replace("../", "")
    return text if text.strip("`") == path or target.startswith("#") else f"{text} ({path})"


def _markdown(text: str) -> Markdown:
    """Rich's rendering, with headings at the left and code unchanged over the full width."""
    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
    from rich.markdown import CodeBlock, Heading, Markdown, TableDataElement
    from rich.text import Text

    class LeftHeading(Heading):
        LEVEL_ALIGN: ClassVar = dict.fromkeys(Heading.LEVEL_ALIGN, "left")

    class PlainCode(CodeBlock):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            lines = str(self.text).rstrip().split("\n")
            indent = max(0, min(_INDENT, options.max_width - max(map(len, lines))))
            width = options.max_width - indent
            for line in lines:
                for start in range(0, len(line) or 1, width):
                    yield Text(" " * indent + line[start : start + width], style="cyan", no_wrap=True)

    class WholeCell(TableDataElement):
        """A cell that breaks a name that does not fit, and never cuts it."""

        def __init__(self, justify: JustifyMethod) -> None:
            super().__init__(justify)
            self.content.overflow = "fold"

    class Page(Markdown):
        elements: ClassVar = {
            **Markdown.elements, "heading_open": LeftHeading, "fence": PlainCode, "code_block": PlainCode,
            "td_open": WholeCell, "th_open": WholeCell,
        }  # fmt: skip

    return Page(text, hyperlinks=False)
