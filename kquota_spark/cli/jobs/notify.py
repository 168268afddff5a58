"""`kquota notify`: sends news from the tables by webhook, Slack, Alertmanager and mail."""

from __future__ import annotations

import argparse

from kquota_spark.cli.exit_codes import DONE, ERROR
from kquota_spark.cli.options import add_settings_options, settings_of
from kquota_spark.config.settings import Settings
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.process.clock import now_ms
from kquota_spark.process.notices import notices_of

COMMANDS = {
    "notify": (
        "programs",
        "news to people by webhook, Slack, Alertmanager and mail: violations, waiting plans, ...",
        "kquota notify --dry-run",
        "kquota notify --test ops",
    ),
}
CODES = {
    "notify": {ERROR: "an error, or a message did not arrive"},
}

_notice = notices_of("notify")


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `notify`."""
    parser = subparsers.add_parser(
        "notify",
        description="Sends {about}, until stopped. What is sent, and to whom, is in the section notifications of the"
        " settings. Needs no Spark.",
    )
    add_settings_options(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--once",
        action="store_true",
        help="read once, send what waits, then end",
    )
    how.add_argument(
        "--dry-run", action="store_true", help="print what --once would send; nothing is sent or written"
    )
    how.add_argument("--test", metavar="ROUTE", help="send one test message to this route, then end")
    parser.set_defaults(run=run_notify)


def run_notify(options: argparse.Namespace) -> int:
    """Send news until stopped, or once.

    Raises:
        UserError: the settings have no routes, or the outbox cannot be written.
    """
    settings = settings_of(options, "notifications")
    if options.test is not None:
        return _test(settings, options.test)
    return _dry_run(settings) if options.dry_run else _run(settings, is_once=options.once)


def _test(settings: Settings, route: str) -> int:
    from kquota_spark.notify.job import send_trial

    print(f"delivered to {terminal_text(route)}: test message {send_trial(settings, route, now_ms())}")
    return 0


def _dry_run(settings: Settings) -> int:
    from kquota_spark.notify.job import Notifier
    from kquota_spark.notify.sending import payload

    notifier, time_ms = Notifier(settings, _notice), now_ms()
    notifier.begin()
    notifier.find(time_ms)
    count = 0
    for name, route, message in notifier.seal(time_ms, is_waiting=False):
        count += 1
        print(f"to {terminal_text(name)} ({route.kind}), message {message.message_id}:")
        data = payload(route, settings.cluster_id, message).decode()
        print("\n".join(terminal_text(line) for line in data.splitlines()))
    notifier.close()
    print(f"nothing was sent; messages: {count}")
    return 0


def _run(settings: Settings, *, is_once: bool) -> int:
    from kquota_spark.notify.job import Notifier
    from kquota_spark.notify.outbox import Outbox
    from kquota_spark.process.graceful_stop import StopRequest

    notifier = Notifier(settings, _notice)
    with Outbox(settings).held():
        notifier.begin()
        if is_once:
            is_well = notifier.turn(now_ms(), is_waiting=False)
            notifier.close()
            return DONE if is_well else ERROR
        stop = StopRequest(_notice)
        _notice(f"routes: {', '.join(settings.notifications.routes)}; stop with Ctrl-C")
        while True:
            notifier.turn(now_ms())
            if stop.wait(settings.notifications.interval / 1_000):
                break
    notifier.close()
    stop.end()
    return 0
