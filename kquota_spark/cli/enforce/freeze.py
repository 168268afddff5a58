"""`kquota freeze` and `kquota unfreeze`: the kill switch of enforcement. Both act at once, without --yes.

Beside them: who is at the command line, and why, as the log of enforcement keeps it too.
"""

from __future__ import annotations

import argparse
import getpass
import os

from kquota_spark.cli.options import add_settings_options, settings_of
from kquota_spark.cli.text.page import say
from kquota_spark.enforce.ports import Frozen
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.process.clock import now_ms
from kquota_spark.store.reading import utc_text

_REASON_LENGTH = 500


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `freeze` and `unfreeze`."""
    freeze = subparsers.add_parser("freeze")
    add_settings_options(freeze)
    freeze.add_argument("--reason", required=True, metavar="TEXT", help="why; everybody sees it")
    freeze.set_defaults(run=run_freeze)
    unfreeze = subparsers.add_parser("unfreeze")
    add_settings_options(unfreeze)
    unfreeze.set_defaults(run=run_unfreeze)


def run_freeze(options: argparse.Namespace) -> int:
    """Turn the switch on.

    Raises:
        UserError: there is no reason, or the switch cannot be written.
    """
    from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch

    frozen = Frozen(now_ms(), login_name(), reason_of(options.reason))
    FreezeSwitch(settings_of(options)).freeze(frozen)
    say(f"{frozen_text(frozen)}; kquota unfreeze lets it continue")
    return 0


def run_unfreeze(options: argparse.Namespace) -> int:
    """Turn the switch off.

    Raises:
        UserError: the switch cannot be written.
    """
    from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch

    switch = FreezeSwitch(settings_of(options))
    frozen = switch.frozen()
    switch.unfreeze()
    say("it was not frozen" if frozen is None else f"unfrozen: was {frozen_text(frozen)}")
    return 0


def frozen_text(frozen: Frozen) -> str:
    """Since when, by whom and why."""
    who, why = terminal_text(frozen.actor), terminal_text(frozen.reason)
    return f"frozen since {utc_text(frozen.since_ms)} by {who}: {why}"


def login_name() -> str:
    """The login name; in a container without an entry for its user, the user's number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def reason_of(text: str | None) -> str:
    """What --reason says.

    Raises:
        UserError: nothing, or too much.
    """
    reason = (text or "").strip()
    if not 0 < len(reason) <= _REASON_LENGTH:
        raise UserError(f"--reason: expected 1 to {_REASON_LENGTH} characters: others will ask why")
    return reason
