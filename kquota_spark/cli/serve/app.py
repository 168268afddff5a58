"""The pages of `kquota serve` by address. They only read; a tenant gets 404 for data of others.

Two pages run scripts. The report has its own policy with the hashes of its scripts, and the live view reloads itself.
Addresses contain no secrets.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial, wraps
from typing import Any

from flask import Flask, Response, abort, g, redirect, request, session
from flask.sessions import SecureCookieSessionInterface
from werkzeug.exceptions import HTTPException

from kquota_spark.cli.serve.access import Access, Viewer
from kquota_spark.cli.serve.contents import BusyError, Contents, QuietError
from kquota_spark.cli.serve.links import LAST_DAY, WEEK, asked_bucket
from kquota_spark.cli.serve.views import (
    first_values,
    live_question,
    live_values,
    state_values,
    table_values,
    timeline_values,
)
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.process.clock import now_ms
from kquota_spark.process.time_limit import SlowError
from kquota_spark.reports.pages.page_html import html_part, html_template
from kquota_spark.reports.scope.period import Period, parse_period

_PERIODS = {
    "last:1h": "the last hour", LAST_DAY: "the last 24 hours", "today": "today", "day": "yesterday",
    WEEK: "the last week",
}  # fmt: skip
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_LOGIN_H = 12
_LIVE_S = 5
_DAY_MS = 86_400_000
_MOST_DAYS = 31
"""Longest period of a report, days: its time and memory grow with the period, and other requests wait."""
_RETRY_AFTER_S = 10
_SEEN = "is_operator"
_NOT_FOUND = "There is no such page, or it is not yours to see."
"""The same for tenants, whether an address is missing or refused."""
_EMPTY: dict[str, Any] = {"verdict": "", "table": None, "missing": "", "stale": ""}
"""Parts of a page that not every viewer has."""
_Page = Callable[..., Any]
_Gate = Callable[..., Callable[[_Page], None]]


class _Sessions(SecureCookieSessionInterface):
    """A cookie that the browser sends only over TLS if the proxy uses TLS."""

    def get_cookie_secure(self, app: Flask) -> bool:
        """Whether the browser connected over TLS."""
        return request.headers.get("X-Forwarded-Proto") == "https"


def app_of(contents: Contents, access: Access) -> Flask:
    """The Flask application."""
    app = Flask("kquota", static_folder=None)
    app.session_interface = _Sessions()
    app.config.update(
        SECRET_KEY=secrets.token_bytes(32),
        SESSION_COOKIE_NAME="kquota",
        SESSION_COOKIE_SAMESITE="Strict",
        PERMANENT_SESSION_LIFETIME=timedelta(hours=_LOGIN_H),
    )
    app.before_request(partial(_only_by_own_name, access))
    app.before_request(partial(_find_viewer, access))
    app.after_request(_with_headers)
    app.register_error_handler(Exception, _failed)
    _add_login(app, access)
    page = _gate(app, access)
    _add_views(page, contents)
    _add_lists(page, contents)
    return app


def _add_login(app: Flask, access: Access) -> None:
    for address, names, kind in (
        ("/style.css", ("report.css", "serve.css"), "text/css"),
        ("/live.js", ("serve.js",), "text/javascript"),
    ):
        text = "".join(map(html_part, names))
        answer = partial(Response, text, mimetype=kind, headers={"Cache-Control": "max-age=3600"})
        app.add_url_rule(address, address, answer)

    @app.route("/login", methods=["GET", "POST"])
    def login() -> Any:
        if not access.has_token:
            abort(404)
        if request.method == "GET":
            return _page("login", title="Log in")
        if not access.is_token(request.form.get("token", "")):
            return _page("login", title="Log in", problem="This is not the token."), 403
        session.clear()
        session[_SEEN] = session.permanent = True
        return redirect("/", 303)

    @app.post("/logout")
    def logout() -> Any:
        session.clear()
        return redirect("/login", 303)


def _gate(app: Flask, access: Access) -> _Gate:
    """A decorator that adds a page at an address. Unknown viewers get the login, tenants only pages for tenants."""

    def page(address: str, *, is_for_tenants: bool = False) -> Callable[[_Page], None]:
        def add(show: _Page) -> None:
            @wraps(show)
            def shown() -> Any:
                viewer: Viewer | None = g.viewer
                if viewer is None:
                    return _page("login" if access.has_token else "unknown", title="Log in"), 401
                if viewer.tenant is not None and not is_for_tenants:
                    abort(404)
                return show(viewer)

            app.get(address)(shown)

        return add

    return page


def _add_views(page: _Gate, contents: Contents) -> None:
    @page("/", is_for_tenants=True)
    def overview(viewer: Viewer) -> str:
        of_user = f"user {viewer.tenant} on " if viewer.tenant is not None else ""
        values = {"title": f"{of_user}cluster {contents.cluster_id}", "periods": _PERIODS}
        if viewer.tenant is None:
            values |= state_values(contents.status())
        elif contents.is_quiet(viewer.tenant):
            return _page("overview", **values, verdict=f"No traffic of {viewer.tenant} in the last week.")
        return _page("overview", **values, **first_values(contents, viewer.tenant, now_ms()))

    @page("/live", is_for_tenants=True)
    def live(viewer: Viewer) -> Response:
        question = live_question(viewer.tenant, request.args.get)
        values = live_values(contents.live(question), question, now_ms())
        page = _page("live", title="Live", refresh_s=_LIVE_S, **values)
        policy = f"{_POLICY}; script-src 'self'; connect-src 'self'"
        return Response(page, headers={"Content-Security-Policy": policy})

    @page("/timeline")
    def timeline(_: Viewer) -> str:
        key = asked_bucket(request.args.get, contents.cluster_id)
        details = None if key is None else contents.timeline(key)
        if key is None or details is None:
            abort(404)
        values = timeline_values(key, details, now_ms())
        return _page("timeline", title="Timeline", stale=contents.stale_text(details.newest_ms), **values)

    @page("/report", is_for_tenants=True)
    def report(viewer: Viewer) -> Any:
        user = request.args.get("user", viewer.tenant)
        if not viewer.may_see(user):
            abort(404)
        asked = request.args.get("period", LAST_DAY)
        period = _period(viewer, asked)
        drawn = contents.report(user or None, asked, period)
        policy = f"{drawn.policy}; frame-ancestors 'none'"
        return Response(drawn.text, headers={"Content-Security-Policy": policy})


def _add_lists(page: _Gate, contents: Contents) -> None:
    @page("/tenants")
    def tenants(_: Viewer) -> str:
        return _page("tenants", title="Users of the last week", users=contents.tenants(), periods=_PERIODS)

    @page("/plans")
    def plans(_: Viewer) -> str:
        waiting = contents.plans()
        return _page("plans", title="Plans that wait", plans=waiting.rows, when_empty=waiting.when_empty)

    @page("/shadow")
    def shadow(_: Viewer) -> str:
        found = contents.shadow()
        return _page("shadow", title="Shadow quotas", about=found.footer, table=table_values(found))


def _period(viewer: Viewer, asked: str) -> Period:
    try:
        period = parse_period(asked, now_ms())
    except ValueError as error:
        abort(400, str(error))
    # Each period is a separate report, and only one is made at a time: tenants may request only a few periods.
    if viewer.tenant is not None and asked not in _PERIODS:
        abort(400, f"{asked!r}: expected one of {', '.join(_PERIODS)}")
    if period.to_ms - period.from_ms > _MOST_DAYS * _DAY_MS:
        abort(400, f"{asked!r}: longer than {_MOST_DAYS} days: kquota report --period makes longer reports")
    return period


def _only_by_own_name(access: Access) -> Any:
    # A foreign page with a name that resolves to this address has the same origin, so it could send any header.
    if access.is_host(request.headers.get("Host", "")):
        return None
    about = "This name of the server is not in serve.hosts of its settings."
    return _page("error", title="Unknown host", about=about), 400


def _find_viewer(access: Access) -> None:
    """Find out who asks, for every address: also a page that does not exist has the links of its viewer."""
    g.has_session = bool(session.get(_SEEN)) and access.has_token
    g.viewer = access.viewer(request.remote_addr, request.headers.get, is_logged_in=g.has_session)


def _page(kind: str, **values: Any) -> str:
    viewer: Viewer | None = g.get("viewer")
    common = {"kind": kind, "viewer": viewer, "has_session": g.get("has_session", False), **_EMPTY}
    return html_template("serve.html.j2").render({**common, **values})


def _with_headers(response: Response) -> Response:
    for name, value in {"Content-Security-Policy": _POLICY, **_HEADERS}.items():
        response.headers.setdefault(name, value)
    return response


def _failed(error: Exception) -> Any:
    """An error page. Only operators see the cause; the log has a bug of kquota."""
    viewer: Viewer | None = g.get("viewer")
    is_operator = viewer is not None and viewer.tenant is None
    if isinstance(error, HTTPException):
        title, about = (
            error.name,
            error.description if error.code == 400 and viewer is not None else error.name,
        )
        if error.code == 404:
            title, about = "Page not found", _NOT_FOUND
        return _page("error", title=title, about=about), error.code or 500
    if not isinstance(error, UserError):
        raise error
    if isinstance(error, BusyError | SlowError):
        text = str(error)
        page = _page("error", title="Not now", about=f"{text[0].upper()}{text[1:]}.")
        return Response(page, 503, {"Retry-After": str(_RETRY_AFTER_S)})
    print(f"kquota serve: {terminal_text(str(error))}", file=sys.stderr)
    about = (
        str(error)
        if is_operator or isinstance(error, QuietError)
        else "There is nothing of yours to show for this time."
    )
    return _page("error", title="Nothing to show", about=about), 404
