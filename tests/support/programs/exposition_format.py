"""A strict reader of Prometheus' text format 0.0.4, after its grammar: anything loose is an error."""

from __future__ import annotations

import re
from itertools import groupby

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Samples = dict[tuple[tuple[str, str], ...], float]


def parsed_exposition(text: str) -> dict[str, Samples]:
    """Values by labels and metric.

    Raises:
        AssertionError: the text breaks the format: a line, a type, a label, or a sample that comes twice.
    """
    assert text.endswith("\n")
    found: dict[str, Samples] = {}
    for name, lines in groupby(text.splitlines(), _family):
        assert name not in found, f"{name} stands in two places"
        about, kind, *samples = lines
        assert re.fullmatch(f"# HELP {name} [^\\\\]+", about), about
        assert kind in (f"# TYPE {name} counter", f"# TYPE {name} gauge"), kind
        assert ("counter" in kind) == name.endswith("_total"), kind
        assert samples, name
        found[name] = {}
        for sample in samples:
            match = _SAMPLE.fullmatch(sample)
            assert match, sample
            labels = _labels(match[2] or "")
            assert labels not in found[name], sample
            found[name][labels] = float(match[3])
    return found


def _family(line: str) -> str:
    return line.split(" ")[2] if line.startswith("# ") else re.split(r"[{ ]", line)[0]


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    labels, at = [], 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match, text
        labels.append((match[1], re.sub(r'\\["\\n]', lambda found: _ESCAPED[found[0]], match[2])))
        at = match.end()
    return tuple(labels)
