"""The pure model on one core, beside `json.loads` of the standard library on the same lines in the same run.

Each figure is the best of several rounds, taken in turns, so that a busy moment of the machine hits all alike.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable, Sequence
from itertools import islice

from kquota_spark.formats.request_log import RequestLogParser
from kquota_spark.model.points import Point
from kquota_spark.model.replay import BucketReplay, Governing
from kquota_spark.model.sampled_rate import RateConfig
from tests.bench.lines import lines

_ROUNDS = 5
_LINES = 20_000
_POINTS = 200_000
_BUCKETS = 10_000
_SECONDS = 10
_SEED = 11

Second = tuple[int, Sequence[tuple[Point, Governing]]]


def model_figures() -> dict[str, float]:
    """Lines and points a second, and the factors over `json.loads`."""
    texts = [line.text for line in islice(lines(range(_LINES)), _LINES) if b"Completed" in line.text]
    bodies = [text[text.index(b"{") : text.rindex(b"}") + 1] for text in texts]
    parser = RequestLogParser()
    chance = random.Random(_SEED)
    hot = _seconds(chance, _POINTS // 100, 100)
    many = [_seconds(chance, _POINTS // _BUCKETS // _SECONDS, _SECONDS) for _ in range(_BUCKETS)]
    work: dict[str, tuple[int, Callable[[], object]]] = {
        "json_loads_lines_per_s": (len(bodies), lambda: [json.loads(body) for body in bodies]),
        "parser_lines_per_s": (len(texts), lambda: [parser.parse(text) for text in texts]),
        "replay_one_bucket_points_per_s": (_POINTS, lambda: _replayed([hot])),
        "replay_10000_buckets_points_per_s": (_POINTS, lambda: _replayed(many)),
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


def _seconds(chance: random.Random, points_a_second: int, seconds: int) -> list[Second]:
    """Seconds of one bucket, about at its limit, as JUDGE folds them."""
    governing = Governing(1_000.0 * points_a_second)
    return [
        (
            second * 1_000,
            sorted(
                (_point(chance, second * 1_000 + chance.randrange(1_000), number), governing)
                for number in range(points_a_second)
            ),
        )
        for second in range(seconds)
    ]


def _point(chance: random.Random, time_ms: int, number: int) -> Point:
    return Point(time_ms, time_ms + 2, 0x5EED, number, chance.randrange(200, 1_800), 0, 0)


def _replayed(buckets: Sequence[Sequence[Second]]) -> None:
    """All of them second by second, as they come in: a bucket is left for the others and come back to."""
    replays = [BucketReplay(RateConfig()) for _ in buckets]
    for of_all in zip(*buckets, strict=True):
        for replay, (second_ms, requests) in zip(replays, of_all, strict=True):
            replay.judge_second(second_ms, requests)


if __name__ == "__main__":
    print(json.dumps(model_figures(), indent=2))
