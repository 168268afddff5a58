"""Command lines for a shell, with names of clients in them. A person can copy each line from the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from kquota_spark.formats.text.escape import terminal_text


def shell_line(words: Iterable[str]) -> str:
    r"""One line that a shell splits into exactly these words; no terminal acts on a character of it.

    Words with hidden characters are written as `$'\x1b'`, which bash, zsh and ksh read.

    Raises:
        ValueError: a word has a NUL character, which no command line can have.
    """
    return " ".join(map(_word, words))


def _word(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL character, which no command line can have")
    if all(_is_plain(char) for char in text):
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _is_plain(char: str) -> bool:
    return char == "\\" or terminal_text(char) == char


def _escaped(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if _is_plain(char):
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
