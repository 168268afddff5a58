"""How long a secret must be that an attacker can try without a limit."""

from __future__ import annotations

LEAST_SECRET = 16
"""Least length of a token or of a key for signatures, characters."""
SHORT_SECRET = f"shorter than {LEAST_SECRET} characters: make one with openssl rand -hex 32"
"""What a message says of a shorter one, after its key."""


def is_short(secret: str) -> bool:
    """Whether a secret could be guessed: it is empty, or shorter than `LEAST_SECRET` characters."""
    return len(secret) < LEAST_SECRET
