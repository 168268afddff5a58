"""`kquota notify`: read, write the outbox, send, write the outbox. After a crash, the same message is sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from kquota_spark.config.owners_file import owners_of
from kquota_spark.config.routes import Alertmanager, Mail, Webhook
from kquota_spark.config.rules import SHORT_SECRET, is_short
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import person_ms
from kquota_spark.model.owners import Owners
from kquota_spark.name_patterns import pattern_problem
from kquota_spark.notify.budgets import with_contacts
from kquota_spark.notify.causes import with_causes
from kquota_spark.notify.formats.text import events_text
from kquota_spark.notify.found import NewsTables
from kquota_spark.notify.news.events import trial
from kquota_spark.notify.news.fold import fold
from kquota_spark.notify.news.lanes import Message, message_id, seal_due
from kquota_spark.notify.news.state import State
from kquota_spark.notify.outbox import Outbox
from kquota_spark.notify.sending import AnyRoute, NotDeliveredError, deliver, repeat

_AT_ONCE = 16
"""Maximum number of messages on the network at a time."""
_REPEAT_MS = 60_000
"""Time between two repeats of an alert, ms.

An Alertmanager resolves an alert that is not repeated within its `resolve_timeout`, 5 min by default.
"""


class Notifier:
    """Finds the news of one cluster and sends it; the second argument prints a line for the operator."""

    def __init__(self, settings: Settings, notice: Callable[[str], None]) -> None:
        owners = owners_of(settings)
        settings = with_contacts(settings, owners)
        self._settings, self._notice = settings, notice
        self._cluster_id = settings.cluster_id
        self._routes: Mapping[str, AnyRoute] = checked_routes(settings.notifications.routes, owners)
        self._tables = NewsTables(settings)
        self._outbox = Outbox(settings)
        self._repeated_ms: dict[str, int] = {}
        self.state = State()

    def begin(self) -> None:
        """Continue from the outbox of the last notifier.

        Raises:
            UserError: the outbox cannot be read.
        """
        self.state = self._outbox.read()
        for name in self.state.keep_routes(self._routes):
            self._notice(f"route {name} is not in the settings any more: its events are dropped")

    def find(self, now_ms: int) -> None:
        """Read new events from the tables and put them into the lanes of their routes.

        Raises:
            UserError: a table cannot be read.
        """
        found = self._tables.read(self.state.known, now_ms)
        news = fold(self.state.known, found, self._routes, now_ms)
        self.state.add(with_causes(self._settings, news, now_ms), now_ms)

    def seal(self, now_ms: int, *, is_waiting: bool = True) -> Iterator[tuple[str, AnyRoute, Message]]:
        """Make messages from the events that have waited long enough; all messages that are not delivered yet."""
        seal_due(self.state.lanes, self._settings.notifications, now_ms, is_waiting=is_waiting)
        for name, lane in self.state.lanes.items():
            if lane.message is not None:
                yield name, self._routes[name], lane.message

    def turn(self, now_ms: int, *, is_waiting: bool = True) -> bool:
        """Find news, then send the messages that are due; whether the tables were read and all due messages arrived.

        Raises:
            UserError: the outbox cannot be written.
        """
        is_well = True
        try:
            self.find(now_ms)
        except UserError as error:
            # Waiting events are sent nevertheless.
            self._notice(str(error))
            is_well = False
        sealed = list(self.seal(now_ms, is_waiting=is_waiting))
        self._outbox.write(self.state)
        due = [each for each in sealed if self.state.lanes[each[0]].is_due(now_ms)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # a receiver that does not answer delays no other
            failures = list(pool.map(lambda each: self._failure(each[1], each[2], now_ms), due))
        for (name, _, message), failure in zip(due, failures, strict=True):
            self._note(name, message, failure, now_ms)
        self._outbox.write(self.state)
        self._repeat(now_ms)
        return is_well and failures == [None] * len(due)

    def close(self) -> None:
        """Free the resources for reading."""
        self._tables.close()

    def _failure(self, route: AnyRoute, message: Message, now_ms: int) -> NotDeliveredError | None:
        try:
            deliver(route, self._cluster_id, message, now_ms)
        except NotDeliveredError as error:
            return error
        return None

    def _note(self, name: str, message: Message, failure: NotDeliveredError | None, now_ms: int) -> None:
        lane, what = self.state.lanes[name], f"message {message.message_id[:8]} to {name}"
        if failure is None:
            lane.delivered(now_ms)
            self._repeated_ms[name] = now_ms
            self._notice(f"{what}: delivered, with {events_text(len(message.events))}")
            return
        pause_ms = lane.failed(now_ms, is_final=failure.is_final)
        then = "it is given up" if pause_ms is None else f"it is sent again in {person_ms(pause_ms)}"
        self._notice(f"{what}: {failure}; {then}")

    def _repeat(self, now_ms: int) -> None:
        for name, route in self._routes.items():
            if not isinstance(route, Alertmanager) or not self._is_repeat_due(name, now_ms):
                continue
            events = [one.event for one in self.state.known.active.values() if name in one.routes]
            self._repeated_ms[name] = now_ms
            if events:
                try:
                    repeat(route, self._cluster_id, events, now_ms)
                except NotDeliveredError as error:
                    self._notice(f"alerts to {name} were not repeated: {error}")

    def _is_repeat_due(self, name: str, now_ms: int) -> bool:
        return not 0 <= now_ms - self._repeated_ms.get(name, -_REPEAT_MS) < _REPEAT_MS


def send_trial(settings: Settings, name: str, now_ms: int) -> str:
    """Send a test message to one route and return its id.

    Raises:
        UserError: there is no such route, or it does not accept the message.
    """
    owners = owners_of(settings)
    routes = with_contacts(settings, owners).notifications.routes
    if name not in routes:
        there = ", ".join(routes) or "none: add one, see kquota help notifications"
        raise UserError(f"notifications.routes: no route {name!r}, expected one of {there}")
    route = checked_routes({name: routes[name]}, owners)[name]
    events = [trial(settings.cluster_id, name, now_ms)]
    message = Message(message_id(name, events), now_ms, events)
    try:
        deliver(route, settings.cluster_id, message, now_ms)
    except NotDeliveredError as error:
        raise UserError(f"route {name}: the test message was not delivered: {error}") from None
    return message.message_id


def checked_routes(routes: Mapping[str, AnyRoute], owners: Owners | None) -> Mapping[str, AnyRoute]:
    """The same routes, if they are valid.

    Args:
        routes: the routes by name.
        owners: the owners; None without a file of owners.

    Raises:
        UserError: there is no route, or a route has problems; one line per problem.
    """
    if not routes:
        raise UserError(
            "notifications.routes: no route in the settings: add one, see kquota help notifications"
        )
    problems = [
        f"notifications.routes.{name}.{problem}"
        for name, route in routes.items()
        for problem in (*route_problems(route), *_owner_problems(route, owners))
    ]
    if problems:
        raise UserError("\n".join(problems))
    return routes


def route_problems(route: AnyRoute) -> Iterator[str]:
    """The problems of a route; each begins with the key."""
    for key, patterns in (("users", route.users), ("client_ids", route.client_ids)):
        for number, pattern in enumerate(patterns):
            if problem := pattern_problem(pattern):
                yield f"{key}[{number}]: {pattern[:60]!r} {problem}"
    if isinstance(route, Mail):
        yield from _mail_problems(route)
    elif not _is_address(route.url):
        yield "url: not an address, expected http:// or https:// with a host, in printable ASCII"
    if isinstance(route, Webhook) and is_short(route.secret):
        yield f"secret: {SHORT_SECRET}"


def _owner_problems(route: AnyRoute, owners: Owners | None) -> Iterator[str]:
    for number, name in enumerate(route.owners):
        if owners is None:
            yield f"owners[{number}]: {name[:60]!r}, and the settings name no file of owners: set owners"
        elif name not in owners.names:
            yield f"owners[{number}]: {name[:60]!r} is no owner of the file, expected one of {_few(owners.names)}"


def _few(names: list[str]) -> str:
    return ", ".join(names[:20])


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.scheme in ("http", "https") and parts.hostname) and url.isascii() and _is_plain(url)
    except ValueError:
        return False


def _is_plain(text: str) -> bool:
    return text.isprintable() and not any(char in text for char in ' ,;<>"')


def _mail_problems(route: Mail) -> Iterator[str]:
    for key, address in (("sender", route.sender), *((f"to[{i}]", one) for i, one in enumerate(route.to))):
        if not (address.isascii() and _is_plain(address) and all(address.rpartition("@")[::2])):
            yield f"{key}: {address[:60]!r}, expected an address such as ops@example.com"
    if not route.to:
        yield "to: no address, expected one or more"
    if not 1 <= route.port <= 65_535:
        yield f"port: {route.port}, expected 1 to 65535"
    if route.user and route.security == "none":
        yield "security: none with a login, expected starttls or tls: the password would be sent in the clear"
