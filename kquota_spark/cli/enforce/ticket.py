"""`--ticket`: the change request of an action, kept in `enforcement_log` with its author and approver."""

from __future__ import annotations

import argparse

_MOST_CHARACTERS = 100
"""Maximum length of a ticket, characters."""


def add_ticket_option(parser: argparse.ArgumentParser) -> None:
    """Add --ticket."""
    parser.add_argument(
        "--ticket",
        type=_ticket,
        metavar="ID",
        help="the change request that this belongs to; it is kept in the log",
    )


def _ticket(text: str) -> str:
    ticket = text.strip()
    if 0 < len(ticket) <= _MOST_CHARACTERS:
        return ticket
    raise argparse.ArgumentTypeError(f"expected 1 to {_MOST_CHARACTERS} characters")
