"""HTTP without redirects: urllib would send a login, or a body, wherever one leads."""

from __future__ import annotations

import urllib.request
from typing import Any


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """None: a redirect stays the error that it is."""


OPENER = urllib.request.build_opener(_NoRedirect)
"""Its `open` raises `urllib.error.HTTPError` for a redirect too."""
