"""Send one message to one receiver, in limited time. A redirect is an error: it would send the login elsewhere."""

from __future__ import annotations

import smtplib
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Any

from kquota_spark.config.routes import Alertmanager, Mail, Slack, Webhook
from kquota_spark.errors import one_line
from kquota_spark.notify.formats import alertmanager, mail, slack, webhook
from kquota_spark.notify.news.events import Event
from kquota_spark.notify.news.lanes import Message
from kquota_spark.process.no_redirects import OPENER, basic_login

_STEP_S = 10.0
"""Maximum time for each answer of the receiver, seconds."""
_MOST_S = 30.0
"""Maximum time for a whole message, seconds."""
_FINAL = frozenset({400, 413, 414, 415, 422})
"""HTTP status codes after which the same message is not sent again, because it would get them again."""
AnyRoute = Webhook | Slack | Alertmanager | Mail


class NotDeliveredError(Exception):
    """The receiver did not accept a message; the text has no address and no secret."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


def deliver(route: AnyRoute, cluster_id: str, message: Message, now_ms: int) -> None:
    """Send a message; the receiver has it when this returns.

    Args:
        route: the receiver.
        cluster_id: the cluster of the events.
        message: a sealed message, the same at each attempt.
        now_ms: time of the attempt, epoch ms.

    Raises:
        NotDeliveredError: the message may have arrived or not.
    """
    if isinstance(route, Mail):
        made = mail.mail(cluster_id, message, route)
        _in_time(lambda: _by_smtp(route, made))
        return
    data, headers = payload(route, cluster_id, message), {"Content-Type": "application/json"}
    if isinstance(route, Webhook):
        headers = webhook.headers(route.secret, message, data, now_ms // 1_000)
    _in_time(lambda: _by_http(address(route), data, headers | _login(route)))


def repeat(route: Alertmanager, cluster_id: str, events: Sequence[Event], now_ms: int) -> None:
    """Send the conditions that still hold again, because otherwise the Alertmanager resolves them.

    Args:
        route: an Alertmanager.
        cluster_id: the cluster of the events.
        events: conditions that still hold.
        now_ms: time of the attempt, epoch ms.

    Raises:
        NotDeliveredError: see `deliver`.
    """
    data = alertmanager.body(cluster_id, events, now_ms)
    headers = {"Content-Type": "application/json"} | _login(route)
    _in_time(lambda: _by_http(address(route), data, headers))


def payload(route: AnyRoute, cluster_id: str, message: Message) -> bytes:
    """The bytes that a receiver gets, without the HTTP headers."""
    if isinstance(route, Mail):
        return mail.mail(cluster_id, message, route).as_bytes()
    if isinstance(route, Alertmanager):
        return alertmanager.body(cluster_id, message.events, message.sealed_ms)
    if isinstance(route, Webhook):
        return webhook.body(cluster_id, message)
    return slack.body(cluster_id, message)


def address(route: Webhook | Slack | Alertmanager) -> str:
    """The URL to which a message is posted."""
    return route.url.rstrip("/") + alertmanager.PATH if isinstance(route, Alertmanager) else route.url


def _login(route: Webhook | Slack | Alertmanager) -> dict[str, str]:
    return basic_login(route.user, route.password) if isinstance(route, Alertmanager) else {}


def _by_http(url: str, data: bytes, headers: dict[str, str]) -> None:
    request = urllib.request.Request(url, data, headers | {"User-Agent": "kquota"})  # noqa: S310 - see job.route_problems
    try:
        with OPENER.open(request, timeout=_STEP_S):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        hint = (
            ", a redirect is not followed: give the receiver's own address" if 300 <= error.code < 400 else ""
        )
        raise NotDeliveredError(f"HTTP {error.code}{hint}", is_final=error.code in _FINAL) from None
    except urllib.error.URLError as error:
        raise NotDeliveredError(_reason(error.reason)) from None
    except (OSError, HTTPException, ValueError) as error:
        raise NotDeliveredError(_reason(error)) from None


def _by_smtp(route: Mail, made: Any) -> None:
    try:
        with _connected(route) as server:
            if route.user:
                server.login(route.user, route.password)
            refused = server.send_message(made)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise NotDeliveredError(_reason(error)) from None
    if refused:
        raise NotDeliveredError(f"refused for {len(refused)} of {len(route.to)} recipients", is_final=True)


def _connected(route: Mail) -> smtplib.SMTP:
    if route.security == "tls":
        return smtplib.SMTP_SSL(route.host, route.port, timeout=_STEP_S, context=ssl.create_default_context())
    server = smtplib.SMTP(route.host, route.port, timeout=_STEP_S)
    if route.security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server


def _reason(error: object) -> str:
    """The text of a network error; for others only its type, because they may quote the address, maybe a secret."""
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "the server offers no STARTTLS, or no login"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"SMTP {error.smtp_code}"
    if isinstance(error, OSError) and not isinstance(error, smtplib.SMTPException):
        return error.strerror or one_line(error) or type(error).__name__
    return type(error).__name__


def _in_time(send: Callable[[], None]) -> None:
    """Call `send` in a thread and stop waiting for it after `_MOST_S`: a receiver may answer byte by byte."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            send()
        except BaseException as error:  # raised below, in the calling thread
            failure.append(error)

    thread = threading.Thread(target=run, name="send", daemon=True)
    thread.start()
    thread.join(_MOST_S)
    if thread.is_alive():
        raise NotDeliveredError(f"no answer within {_MOST_S:.0f} s")
    if failure:
        raise failure[0]
