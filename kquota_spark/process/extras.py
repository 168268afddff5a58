"""How to install an extra of this package, for messages: the project is on no package index."""

from __future__ import annotations


def install_text(extra: str) -> str:
    """The commands that install an extra, in a checkout and from a wheel.

    Args:
        extra: as pyproject.toml names it, e.g. `spark`.
    """
    return f"in a checkout pip install '.[{extra}]', else pip install 'WHEEL[{extra}]' with the wheel's path"
