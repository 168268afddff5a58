"""Patterns over the names that clients choose: regular expressions of RE2, for whole names, in linear time."""

from __future__ import annotations

import re2

MOST_CHARACTERS = 1_000
"""Maximum length of a pattern, characters."""
_MOST_OF_NAME = 32_767
"""Maximum length of a name in Kafka's protocol, characters: the protocol has 16-bit lengths."""


def is_match(pattern: str, name: str) -> bool:
    r"""Whether a pattern matches a whole name; False for a name that is too long for Kafka's protocol.

    The time is linear in the length of the name. Clients choose their names. Python's `re` backtracks, so with some
    patterns a client id could stop the enforcer. RE2 does not backtrack: it has no look-around and no
    back-references, and its `\w` and `\d` are ASCII.
    """
    if len(name) > _MOST_OF_NAME:
        return False
    # RE2 reads UTF-8, which cannot encode lone surrogates.
    text = name.encode("utf-8", errors="replace").decode()
    return re2.fullmatch(pattern, text, _quiet()) is not None


def pattern_problem(pattern: str) -> str | None:
    """The reason why a text is not a valid pattern; None if it is valid."""
    if len(pattern) > MOST_CHARACTERS:
        return f"has {len(pattern)} characters, expected at most {MOST_CHARACTERS}"
    try:
        re2.compile(pattern, _quiet())
    except re2.error as error:
        [reason] = error.args
        return f"is no regular expression ({reason.decode(errors='replace')})"
    except UnicodeEncodeError:
        return "is no regular expression (not UTF-8)"
    return None


def _quiet() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    return options
