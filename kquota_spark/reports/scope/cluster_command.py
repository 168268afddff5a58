"""Commands that a report prints, with the settings of its cluster."""

from __future__ import annotations

import shlex


def on_cluster(command: str, file: str) -> str:
    """The command with `--config FILE`, so that it runs in any shell on the same cluster.

    Args:
        command: names no cluster, such as `kquota agreement`.
        file: path of the settings; empty for the built-in defaults, which need no option.
    """
    return f"{command} --config {shlex.quote(file)}" if file else command
