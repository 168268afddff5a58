"""The minimum length of a secret that an attacker can try without a limit."""

from __future__ import annotations

LEAST_SECRET = 16
"""Minimum length of a token or of a key for signatures, characters."""
SHORT_SECRET = f"shorter than {LEAST_SECRET} characters: make one with openssl rand -hex 32"
"""The problem with a shorter secret, for a message after its key."""


def is_short(secret: str) -> bool:
    """Whether a secret could be guessed: it is empty, or shorter than `LEAST_SECRET` characters."""
    return len(secret) < LEAST_SECRET
