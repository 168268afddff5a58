"""The pure model on one core, beside `json.loads` of the standard library on the same lines in the same run.

Each figure is the best of several rounds, taken in turns, so that a busy moment of the machine hits all alike.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections import deque
from collections.abc import Callable, Sequence

from kquota_spark.formats.request_log import RequestLogParser
from kquota_spark.model.points import Point
from kquota_spark.model.replay import BucketReplay, Governing
from kquota_spark.model.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.throttle_time import throttle_time_ms
from tests.support.logs.request_lines import json_bodies, request_lines

_ROUNDS = 5
_POINTS = 400_000
_BUCKETS = 10_000
_SECONDS = 10
_BATCH_SECONDS = 10
_SEED = 11

Batch = tuple[Sequence[Point], Sequence[Governing]]


def model_figures() -> dict[str, float]:
    """Lines and points a second, and the factors over `json.loads`.

    The lines are those of real brokers in `tests/data`. `replay` is the broker's own arithmetic: ring, rate
    and throttle time. `judge` is what the audit does with a point: the same, and whether it is certain.
    """
    texts = request_lines()
    bodies = json_bodies(texts)
    parse = RequestLogParser().parse
    chance = random.Random(_SEED)
    hot = [_batches(chance, _POINTS // 100, 100)]
    many = [_batches(chance, _POINTS // _BUCKETS // _SECONDS, _SECONDS) for _ in range(_BUCKETS)]
    work: dict[str, tuple[int, Callable[[], None]]] = {
        "json_loads_lines_per_s": (len(bodies), lambda: _each(json.loads, bodies)),
        "parser_lines_per_s": (len(texts), lambda: _each(parse, texts)),
        "replay_one_bucket_points_per_s": (_POINTS, lambda: _replayed(hot)),
        "replay_10000_buckets_points_per_s": (_POINTS, lambda: _replayed(many)),
        "judge_one_bucket_points_per_s": (_POINTS, lambda: _judged(hot)),
        "judge_10000_buckets_points_per_s": (_POINTS, lambda: _judged(many)),
    }
    best_s = dict.fromkeys(work, float("inf"))
    gc.disable()
    for _ in range(_ROUNDS):
        for name, (_, call) in work.items():
            started_s = time.perf_counter()
            call()
            best_s[name] = min(best_s[name], time.perf_counter() - started_s)
    gc.enable()
    found = {name: round(count / best_s[name]) for name, (count, _) in work.items()}
    base = found["json_loads_lines_per_s"]
    factors = {
        f"{name.removesuffix('_per_s')}_to_json_loads": round(rate / base, 2)
        for name, rate in found.items()
        if rate != base
    }
    return {**found, **factors}


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
    print(json.dumps(model_figures(), indent=2))
