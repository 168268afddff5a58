"""HTTP without redirects: urllib would send a login or a body to the target of any redirect."""

from __future__ import annotations

import base64
import urllib.request
from typing import Any


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that refuses redirects, for openers that need more than `OPENER` has."""

    def redirect_request(self, *_: Any) -> None:
        """None, so that urllib treats the redirect as an error."""


OPENER = urllib.request.build_opener(NoRedirect)
"""An opener that also raises `urllib.error.HTTPError` for a redirect."""


def basic_login(user: str, password: str) -> dict[str, str]:
    """The HTTP header of a login by name and password; empty without a user."""
    if not user:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
