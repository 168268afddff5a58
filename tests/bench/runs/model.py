"""`python -m tests.bench.runs.model`: the pure model on one core, beside `json.loads` on the same lines. 1 minute.

The rounds of all figures are taken in turns, so that a busy moment of the machine hits all alike. `replay` is the
broker's own arithmetic: ring, rate and throttle time. `judge` is what the audit does with a point: the same,
and whether the verdict is certain.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from kquota_spark.formats.request_log.line import RequestLogParser
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.measure.throttle_time import throttle_time_ms
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.replay import BucketReplay
from tests.bench.report import Report, Spread, spread
from tests.support.logs.request_lines import json_bodies, request_lines

_ROUNDS = int(os.environ.get("MODEL_ROUNDS", "5"))
_POINTS = int(os.environ.get("MODEL_POINTS", "400000"))
"""A multiple of ten times the buckets, and of 100."""
_BUCKETS = int(os.environ.get("MODEL_BUCKETS", "10000"))
_SECONDS = 10
_BATCH_SECONDS = 10
_SEED = 11

_JSON_LOADS = "`json.loads` of the standard library, lines"
_COLUMNS = {"work": "", "per_s": "per second (range)", "to_json_loads": "times `json.loads`"}

Batch = tuple[Sequence[Point], Sequence[Governing]]


def main() -> int:
    """Print the figures."""
    with Report("model", _COLUMNS) as report:
        found = _rates()
        for work, rate in found.items():
            times = round(rate.median / found[_JSON_LOADS].median, 2)
            report.add({"work": work, "per_s": rate, "to_json_loads": times})
    return 0


def _rates() -> dict[str, Spread]:
    """Lines and points per second; the lines are those of real brokers in `tests/data`."""
    texts = request_lines()
    bodies = json_bodies(texts)
    parse = RequestLogParser().parse
    chance = random.Random(_SEED)
    hot = [_batches(chance, _POINTS // 100, 100)]
    many = [_batches(chance, _POINTS // _BUCKETS // _SECONDS, _SECONDS) for _ in range(_BUCKETS)]
    work: dict[str, tuple[int, Callable[[], None]]] = {
        _JSON_LOADS: (len(bodies), lambda: _each(json.loads, bodies)),
        "the parser, exact bytes included, lines": (len(texts), lambda: _each(parse, texts)),
        "replay of one hot bucket, points": (_POINTS, lambda: _replayed(hot)),
        f"replay over {_BUCKETS:,} buckets, points": (_POINTS, lambda: _replayed(many)),
        "judging of one hot bucket, points": (_POINTS, lambda: _judged(hot)),
        f"judging over {_BUCKETS:,} buckets, points": (_POINTS, lambda: _judged(many)),
    }
    seconds = defaultdict[str, list[float]](list)
    gc.disable()
    for _ in range(_ROUNDS):
        for name, (_, call) in work.items():
            started_s = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - started_s)
    gc.enable()
    return {name: spread([count / each for each in seconds[name]]) for name, (count, _) in work.items()}


def _each(call: Callable[[bytes], object], texts: Sequence[bytes]) -> None:
    for text in texts:
        call(text)


def _batches(chance: random.Random, points_a_second: int, seconds: int) -> Sequence[Batch]:
    """Ten seconds at a time of one bucket, about at its limit, as a micro-batch of JUDGE brings them."""
    governing = Governing(1_000.0 * points_a_second)
    found: list[Batch] = []
    for start in range(0, seconds, _BATCH_SECONDS):
        points = sorted(
            _point(chance, second * 1_000 + chance.randrange(1_000), number)
            for second in range(start, start + _BATCH_SECONDS)
            for number in range(points_a_second)
        )
        found.append((points, [governing] * len(points)))
    return found


def _point(chance: random.Random, time_ms: int, number: int) -> Point:
    return Point(time_ms, time_ms + 2, 0x5EED, number, chance.randrange(200, 1_800), 0, 0)


def _replayed(buckets: Sequence[Sequence[Batch]]) -> None:
    """Batch by batch, as they come in: a bucket is left for the others and come back to."""
    rings = [SampleRing(RateConfig()) for _ in buckets]
    for of_all in zip(*buckets, strict=True):
        for ring, (points, governing) in zip(rings, of_all, strict=True):
            times_ms, _, _, _, amounts, _, _, _ = zip(*points, strict=True)
            totals, windows_ms = ring.record_all(amounts, times_ms)
            limits = [each.limit_per_s for each in governing]
            deque(map(throttle_time_ms, totals, windows_ms, limits), maxlen=0)


def _judged(buckets: Sequence[Sequence[Batch]]) -> None:
    replays = [BucketReplay(RateConfig()) for _ in buckets]
    for of_all in zip(*buckets, strict=True):
        for replay, (points, governing) in zip(replays, of_all, strict=True):
            replay.judge(points, governing)


if __name__ == "__main__":
    sys.exit(main())
