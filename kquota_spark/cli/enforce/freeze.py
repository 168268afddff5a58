"""`kquota freeze` and `kquota unfreeze`: the kill switch of enforcement. Both act at once, without --yes.

Also the login name and the reason that the enforcement log keeps.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
import time
from contextlib import suppress

from kquota_spark.cli.options import add_settings_options, settings_of
from kquota_spark.cli.text.page import print_line
from kquota_spark.config.settings import Enforcement, Settings
from kquota_spark.enforce.ports import Frozen
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import person_ms
from kquota_spark.process.clock import now_ms
from kquota_spark.store.reading import utc_text

COMMANDS = {
    "freeze": (
        "changes with guards",
        "stop all enforcement at once: nothing is sent any more, neither changes nor expiries",
        "kquota freeze --reason 'incident 4711' --wait",
    ),
    "unfreeze": (
        "changes with guards",
        "let enforcement continue; expired changes are reverted at once",
        "kquota unfreeze",
    ),
}

_REASON_LENGTH = 500
_CHECK_S = 60.0
"""Longest time of one check of the enforcer, s; a part of the time limit of `--wait`."""
_POLL_S = 0.2


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `freeze` and `unfreeze`."""
    freeze = subparsers.add_parser("freeze")
    add_settings_options(freeze)
    freeze.add_argument("--reason", required=True, metavar="TEXT", help="why; everybody sees it")
    freeze.add_argument(
        "--wait", action="store_true", help="until the enforcer confirms that it has read the switch"
    )
    freeze.set_defaults(run=run_freeze)
    unfreeze = subparsers.add_parser("unfreeze")
    add_settings_options(unfreeze)
    unfreeze.set_defaults(run=run_unfreeze)


def run_freeze(options: argparse.Namespace) -> int:
    """Turn the switch on.

    Raises:
        UserError: the reason is empty, no table has rows of the cluster, the switch cannot be written, or with --wait
            no enforcer confirms it.
    """
    from kquota_spark.enforcement.situation import require_known_cluster

    settings, reason = settings_of(options, "cluster_id", "tables"), reason_of(options.reason)
    require_known_cluster(settings)
    frozen, switch = Frozen(now_ms(), login_name(), reason), FreezeSwitch(settings)
    switch.freeze(frozen)
    print_line(f"{_cluster_text(settings)} is {frozen_text(frozen)}; kquota unfreeze lets it continue")
    if options.wait:
        sys.stdout.flush()
        print_line(_confirmed_text(settings, switch))
    else:
        print_line(f"switch {reading_text(switch, frozen.since_ms)}; --wait waits for its confirmation")
    return 0


def _confirmed_text(settings: Settings, switch: FreezeSwitch) -> str:
    """Wait until the enforcer has read the switch; returns the confirmation."""
    trigger_ms = Enforcement().trigger
    with suppress(UserError):  # a mistake in a section that freezing does not need
        trigger_ms = settings.enforcement.trigger
    within_s = _CHECK_S + 2 * trigger_ms / 1_000
    until_s = time.monotonic() + within_s
    while True:
        frozen, reading = switch.frozen(), switch.reading()
        if frozen is None:
            raise UserError(f"{_cluster_text(settings)} was unfrozen while we waited")
        if reading is not None and reading.frozen_since_ms == frozen.since_ms:
            return f"confirmed: {terminal_text(reading.reader)} has read it and sends nothing"
        if time.monotonic() > until_s:
            raise UserError(
                f"no enforcer has confirmed within {within_s:.0f} s, the switch stays on: "
                f"{reading_text(switch, now_ms())}: does kquota enforce run work with these tables and this cluster_id?"
            )
        time.sleep(_POLL_S)


def run_unfreeze(options: argparse.Namespace) -> int:
    """Turn the switch off.

    Raises:
        UserError: no table has rows of the cluster, or the switch cannot be written.
    """
    from kquota_spark.enforcement.situation import require_known_cluster

    settings = settings_of(options, "cluster_id", "tables")
    switch = FreezeSwitch(settings)
    frozen = switch.frozen()
    if frozen is None or not frozen.since_ms:  # off, or unreadable
        require_known_cluster(settings)
    if frozen is None:
        print_line(f"{_cluster_text(settings)} was not frozen")
        return 0
    switch.unfreeze()
    print_line(f"{_cluster_text(settings)} is unfrozen: was {frozen_text(frozen)}")
    return 0


def _cluster_text(settings: Settings) -> str:
    return f"cluster {terminal_text(settings.cluster_id)}"


def reading_text(switch: FreezeSwitch, time_ms: int) -> str:
    """The path of the switch, and which enforcer read it last, and when."""
    reading = switch.reading()
    if reading is None:
        return f"{terminal_text(switch.where)}, no enforcer has read it yet"
    ago = person_ms(max(0, time_ms - reading.at_ms))
    return f"{terminal_text(reading.switch)}, read by {terminal_text(reading.reader)} {ago} ago"


def frozen_text(frozen: Frozen) -> str:
    """When the cluster was frozen, by whom and why."""
    who, why = terminal_text(frozen.actor), terminal_text(frozen.reason)
    return f"frozen since {utc_text(frozen.since_ms)} by {who}: {why}"


def login_name() -> str:
    """The login name, or the user's number in a container without an entry for the user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def reason_of(text: str | None) -> str:
    """The text of --reason, stripped.

    Raises:
        UserError: the text is empty or too long.
    """
    reason = (text or "").strip()
    if not 0 < len(reason) <= _REASON_LENGTH:
        raise UserError(f"--reason: expected 1 to {_REASON_LENGTH} characters: others will ask why")
    return reason
