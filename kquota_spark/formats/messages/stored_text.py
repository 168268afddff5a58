"""What of an unreadable line may be stored."""

from __future__ import annotations

import re

_SENSITIVE = re.compile(
    rb"sasl|scram|token|password|passwd|secret|jaas|authbytes|salt|hmac|alter_?configs|\.key|credential|requestdata",
    re.IGNORECASE,
)
# In the envelope of a shipper, quotation marks are escaped.
_API_KEY = re.compile(rb'"requestApiKey\\*":(\d+),')
_SENSITIVE_KEYS = {b"17", b"33", b"36", b"38", b"39", b"40", b"41", b"44", b"50", b"51", b"58"}


def storable_text(line: bytes, limit_bytes: int) -> str | None:
    """Text of an unreadable line that may be stored: cut, and None where it might hold a secret.

    SASL, delegation token, SCRAM and AlterConfigs requests are recognised by API key where it is there, and
    by words where the line is cut, like ENVELOPE, which may hold any; when in doubt nothing is kept.
    """
    if _SENSITIVE.search(line):
        return None
    key = _API_KEY.search(line)
    if key is not None and key.group(1) in _SENSITIVE_KEYS:
        return None
    return line[:limit_bytes].decode("utf-8", "replace").replace("\x00", "\ufffd")
