"""A page of the documentation as text for a terminal: headings, code and tables in a given width."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from rich.markdown import Markdown

_LINK = re.compile(r"!?\[([^\]]+)\]\(([^)\s]+)\)")
_PAGE = re.compile(r"(?:[\w./-]*/)?([\w-]+)\.md(?:#.*)?")
_INDENT = 4
_BLANK_LINES = re.compile(r"\n{3,}")
_FENCE = re.compile(r"^ *```")


def page_text(markdown: str, columns: int, *, has_colour: bool) -> str:
    """The page, no line longer than `columns`.

    Args:
        markdown: a page of ours.
        columns: width.
        has_colour: with the escape sequences of a terminal.
    """
    from rich.console import Console
    from rich.theme import Theme

    # Written to memory: the terminal may be in an encoding that has none of these characters.
    console = Console(
        file=io.StringIO(),
        width=columns,
        force_terminal=has_colour,
        color_system="standard" if has_colour else None,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        # Rich's own puts code on black, which no light terminal is.
        theme=Theme({"markdown.code": "cyan"}),
    )
    with console.capture() as capture:
        console.print(_markdown(with_topics(markdown)))
    text = "\n".join(line.rstrip() for line in capture.get().split("\n"))
    return _BLANK_LINES.sub("\n\n", text).strip("\n") + "\n"


def with_topics(markdown: str) -> str:
    """The page with its links as text: another page by the name of its topic, a file of the checkout by its path."""
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
    """Rich's rendering, but for headings at the left and code as it stands, from edge to edge."""
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
        """A name that does not fit is broken, never cut."""

        def __init__(self, justify: JustifyMethod) -> None:
            super().__init__(justify)
            self.content.overflow = "fold"

    class Page(Markdown):
        elements: ClassVar = {
            **Markdown.elements, "heading_open": LeftHeading, "fence": PlainCode, "code_block": PlainCode,
            "td_open": WholeCell, "th_open": WholeCell,
        }  # fmt: skip

    return Page(text, hyperlinks=False)
