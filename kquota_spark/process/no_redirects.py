"""HTTP without redirects: urllib would send a login, or a body, wherever one leads."""

from __future__ import annotations

import base64
import urllib.request
from typing import Any


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """For openers that need more than `OPENER` has."""

    def redirect_request(self, *_: Any) -> None:
        """None: a redirect stays the error that it is."""


OPENER = urllib.request.build_opener(NoRedirect)
"""Its `open` raises `urllib.error.HTTPError` for a redirect too."""


def basic_login(user: str, password: str) -> dict[str, str]:
    """The header of a login by name and password; nothing without a user."""
    if not user:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
