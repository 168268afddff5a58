"""Versions of brokers: parts of what a broker does depend on its version."""

from __future__ import annotations


def major_minor(version: str) -> tuple[int, int]:
    """The first two numbers of a broker version such as `3.9.1`.

    Raises:
        ValueError: the text does not begin with major.minor.
    """
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
