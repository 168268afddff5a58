"""Prints what was found: a row per bucket, the confusion matrix, hits, and the precision of each cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kquota_spark.formats.text.person_units import person_ms
from kquota_spark.model.attribution.detectors import Cause
from tests.causes.recording import Answer

_LINE = "{:>4}  {:<16} {:>9}  {:<6} {}"
_NONE = "-"


def print_verdicts(found: Sequence[Answer]) -> None:
    """Print all answers, and how often they are right."""
    for each in found:
        print(_row(each))
    labelled = [each for each in found if each.cause is not None]
    nulls = [each for each in found if each.cause is None]
    _print_matrix(found)
    first = sum(each.named[:1] == [each.cause] for each in labelled)
    first_two = sum(each.cause in each.named[:2] for each in labelled)
    print(f"first: {first} of {len(labelled)}; in the first two: {first_two} of {len(labelled)}")
    print(f"calm runs in which nobody is blamed: {sum(each.is_blameless for each in nulls)} of {len(nulls)}")


def _row(each: Answer) -> str:
    if each.attribution is None:
        return _LINE.format(each.seed, each.label, _NONE, _verdict(each), "not throttled")
    shares = ", ".join(f"{part.cause.value} {part.share_percent:.0f} %" for part in each.attribution.parts)
    rest = f"rest {each.attribution.rest_percent:.0f} %"
    delay = person_ms(each.attribution.delay_ms)
    return _LINE.format(each.seed, each.label, delay, _verdict(each), f"{shares}; {rest}" if shares else rest)


def _verdict(each: Answer) -> str:
    if each.cause is None:
        return "ok" if each.is_blameless else "BLAMED"
    if each.named[:1] == [each.cause]:
        return "first"
    return "second" if each.cause in each.named[:2] else "NO"


def _print_matrix(found: Sequence[Answer]) -> None:
    """The label of each bucket against the cause that is named first, and the precision of each cause."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in found:
        label = each.label if each.cause is not None else "nulls"
        counts[label, each.named[0].value if each.named else _NONE] += 1
    causes = [_NONE, *sorted({cause for _, cause in counts} - {_NONE})]
    labels = list(dict.fromkeys(label for label, _ in counts))
    print("\n" + " " * 18 + "  ".join(causes))
    for label in labels:
        cells = (f"{counts[label, cause] or '.':>{len(cause)}}" for cause in causes)
        print(f"{label:<16}  " + "  ".join(cells))
    # Nobody is blamed where a null is steady at the limit.
    right = Counter(
        each.named[0] for each in found if each.named and each.named[0] is (each.cause or Cause.STEADY)
    )
    named = Counter(each.named[0] for each in found if each.named)
    shown = ", ".join(
        f"{cause.value} {right[cause]}/{count}" for cause, count in sorted(named.items(), key=str)
    )
    print(f"\nright of named first: {shown}")
