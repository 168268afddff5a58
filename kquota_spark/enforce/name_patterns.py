r"""Patterns for names that clients choose, compared in time linear in the name.

An engine that goes back, such as Python's `re`, takes time exponential in the name for some patterns: a client could
stop the enforcer by its client id. RE2 does not go back. It has no look-around and no back-references, and its `\w`
and `\d` are ASCII.
"""

from __future__ import annotations

import re2

MOST_CHARACTERS = 1_000
"""Maximum length of a pattern."""
_MOST_OF_NAME = 32_767
"""Maximum length of a name in Kafka's protocol, whose lengths are 16-bit numbers."""


def is_match(pattern: str, name: str) -> bool:
    """Whether a pattern fits a whole name; a name longer than the protocol can carry fits none."""
    if len(name) > _MOST_OF_NAME:
        return False
    # RE2 reads UTF-8, which has no lone surrogates.
    text = name.encode("utf-8", errors="replace").decode()
    return re2.fullmatch(pattern, text, _quiet()) is not None


def pattern_problem(pattern: str) -> str | None:
    """Why a text cannot be a pattern; None if it can."""
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
