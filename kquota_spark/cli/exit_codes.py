"""The exit codes of all commands: the one place that help, documentation and tests take them from."""

from __future__ import annotations

from collections.abc import Sequence

DONE, ERROR, USAGE, REFUSED, NOTHING, STOPPED = 0, 1, 2, 3, 4, 130
FOUND = 2
"""What `diff`, `drift`, `doctor` and `status` found. Their usage errors are 1: cron must not take one for a find."""

_ERROR = "an error, in one line on standard error"
ALL = {DONE: "done", ERROR: _ERROR, USAGE: "a usage error", STOPPED: "stopped with Ctrl-C"}
"""What a code means where a command has no meaning of its own for it."""

_REFUSED_THERE = "an error, or the cluster refused"
_NOTHING = "nothing was done: --yes is missing, there is nothing to do, or it waits for a person"
_EDITING = {ERROR: _REFUSED_THERE, NOTHING: "nothing was done: you did not agree"}
_SENDING = {ERROR: _REFUSED_THERE, REFUSED: "a guard refused", NOTHING: _NOTHING}
_TAKING_BACK = {ERROR: _REFUSED_THERE, NOTHING: _NOTHING}
_LIFTING = {ERROR: "an error, or a quota is not as asked", NOTHING: _NOTHING}
OWN = {
    "diff": {DONE: "no difference", ERROR: "an error, or a usage error", FOUND: "a difference"},
    "drift": {
        DONE: "as declared",
        ERROR: "an error, a usage error, or the tables do not know the quotas of now",
        FOUND: "drift",
    },
    "doctor": {DONE: "all checks pass", ERROR: "an error, or a usage error", FOUND: "a check fails"},
    "status": {DONE: "all is well", ERROR: "an error, or a usage error", FOUND: "a part is not well"},
    "import": _EDITING,
    "alter": _EDITING,
    "describe": {DONE: "done, also if nothing matches"},
    "kfk": {ERROR: _REFUSED_THERE},
    "export": {ERROR: "an error, or the format cannot say some quotas"},
    "report": {ERROR: "an error, or a page could not be made"},
    "notify": {ERROR: "an error, or a message did not arrive"},
    "top": {129: "its terminal went away"},
    "enforce approve": {NOTHING: _NOTHING},
    "enforce apply": _SENDING,
    "enforce rollback": _TAKING_BACK,
    "override set": _SENDING,
    "override expire": _TAKING_BACK,
    "quotas disable": _LIFTING,
    "quotas enable": _LIFTING,
    "cluster status": {ERROR: "an error, or not all of it runs"},
}
"""By command, what differs from `ALL`."""


def codes_of(words: Sequence[str]) -> dict[int, str]:
    """The exit codes of a command, with their meanings, ascending.

    Args:
        words: the command and what follows it, e.g. `enforce apply p-1`.
    """
    found = OWN.get(" ".join(words[:2])) or OWN.get(" ".join(words[:1])) or {}
    return dict(sorted((ALL | found).items()))


def finds_by_2(command: str) -> bool:
    """Whether 2 says what a command found, and no usage error."""
    return FOUND in OWN.get(command, {})


def codes_text(words: Sequence[str]) -> str:
    """The exit codes of a command in one sentence."""
    return "Exit codes: " + ", ".join(f"{code} {meaning}" for code, meaning in codes_of(words).items()) + "."
