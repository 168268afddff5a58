"""`kquota top` as people see it: the real program on a terminal."""

from __future__ import annotations

import os
import re
import shutil
import signal
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.programs.terminal import Terminal
from tests.support.tables.table_rows import decision, usage, write_table

HOSTILE = "x\x1b[2J[red]y[/]\u202ez\n"
WIDE = "订单服务e\u0301"
Start = Callable[..., Terminal]


def buckets() -> list[dict[str, object]]:
    """Four buckets: etl far over its limit, bob near it, two hostile names well below."""
    over = {"bucket_client_id": "etl", "rule": "users/alice/clients/etl", "level": 1}
    rows = []
    for s in range(60):
        rows += [
            decision(
                s, **over, limit_per_s=1e6, rate_per_s=1.5e6, quota_used_percent=150.0, total_throttle_ms=50
            ),
            decision(
                s, bucket_user="bob", rule="users/bob", rate_per_s=9e5, quota_used_percent=90.0, users=["bob"]
            ),
        ]
    return [
        *rows,
        decision(
            59, bucket_user=HOSTILE, rate_per_s=3e6, limit_per_s=1e7, quota_used_percent=30.0, users=[HOSTILE]
        ),
        decision(59, bucket_user=WIDE, rate_per_s=2e5, quota_used_percent=20.0, broker_id=2, users=[WIDE]),
    ]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("top")
    write_table(root, "decisions", *buckets())
    write_table(root, "usage", *(usage(s, amount=700_000, requests=7) for s in range(60)))
    return root


@pytest.fixture
def start(tables: Path) -> Iterator[Start]:
    started: list[Terminal] = []

    def top(*arguments: str, root: Path = tables, **how: object) -> Terminal:
        started.append(Terminal("top", "--tables", str(root), "--interval", "1s", *arguments, **how))  # type: ignore[arg-type]
        return started[-1]

    yield top
    for terminal in started:
        terminal.close()


def names(lines: list[str]) -> list[str]:
    """The first word of each bucket, in the order of the screen."""
    found = (re.match(r" +[12]  produce  (?:user )?(\S+)", line) for line in lines)
    return [match.group(1) for match in found if match]


def test_the_first_screen_shows_the_buckets_and_how_old_they_are(start: Start) -> None:
    lines = start().until_shown("bob")
    # On the newest second: 150 % of 1 MB/s; ten requests of 1,000 bytes in ten seconds; ten throttles of 50 ms.
    assert re.fullmatch(
        r"     1  produce  alice / etl  +1\.0 MB/s   1\.5 MB/s   1\.0 kB/s  150\.0 %     500 ms  █{12}",
        lines[3],
    )
    assert re.fullmatch(
        r"     1  produce  user bob  +1\.0 MB/s   900 kB/s   1\.0 kB/s   90\.0 %       0 ms  ▅{12}", lines[4]
    )
    assert re.fullmatch(
        r"kquota top  kafka  every 1 s +STALE: newest second 2026-11-21T05:40:59Z, \d+ \w+ ago", lines[0]
    )
    assert lines[1] == "4 buckets; 2 at 80 % or more, 1 over the limit"
    assert lines[23].startswith("u:used r:rate")


def test_keys_sort_and_reverse(start: Start) -> None:
    terminal = start()
    terminal.until_shown("used▼")
    assert names(terminal.lines())[:2] == ["alice", "bob"]
    terminal.type("r")
    # 3 MB/s, 1.5 MB/s, 900 kB/s, 200 kB/s.
    terminal.until_shown("rate▼")
    assert names(terminal.lines())[1:3] == ["alice", "bob"]
    terminal.type("R")
    terminal.until_shown("rate▲")
    assert names(terminal.lines())[1:3] == ["bob", "alice"]
    terminal.type("n")
    terminal.until(lambda lines: names(lines)[:2] == ["alice", "bob"], "alice before bob")
    terminal.type("b")
    terminal.until(lambda lines: lines[6].startswith("     2"), "broker 2 last")


def test_a_part_of_a_name_filters_and_escape_shows_all_again(start: Start) -> None:
    terminal = start()
    terminal.until_shown("bob")
    terminal.type("/BO")
    terminal.until_shown("filter: BO_")
    terminal.type("\r")
    lines = terminal.until_shown("[name with BO]")
    assert names(lines) == ["bob"]
    assert lines[1].startswith("1 bucket;")
    terminal.type("\x1b")
    terminal.until(lambda lines: len(names(lines)) >= 3, "all buckets")


def test_a_bucket_from_near_names_its_clients(start: Start) -> None:
    terminal = start("--client", "etl", "--sort", "name")
    terminal.until_shown("alice / etl")
    terminal.type("\r")
    lines = terminal.until_shown("in 60 s")
    assert lines[2] == "alice / etl, produce, broker 1, rule u/alice/c/etl"
    # 60 seconds of 700,000 bytes and 7 requests.
    assert lines[5].split() == ["alice", "etl", "700", "kB/s", "42.0", "MB", "420", "0", "ms"]
    assert lines[8].startswith("05:40:59  1.0 MB/s  1.5 MB/s  150.0 %")


def test_a_narrow_terminal_drops_columns_and_nothing_remains_of_the_wide_one(start: Start) -> None:
    terminal = start(columns=120)
    wide = terminal.until_shown("last 60 s")
    terminal.resize(60, 20)
    lines = terminal.until(lambda lines: any("used▼" in line for line in lines), "a new screen")
    assert lines[2] == "type     bucket                    limit       rate    used▼"
    assert max(map(len, lines)) <= 60 and not any("▅" in line for line in lines)
    terminal.resize(120, 24)
    assert terminal.until_shown("last 60 s")[2:] == wide[2:]


def test_hostile_names_stay_in_their_cells(start: Start) -> None:
    terminal = start("--sort", "name", columns=170)
    lines = terminal.until_shown("订")
    (hostile,) = (line for line in lines if "[red]" in line)
    assert "user x\\x1b[2J[red]y[/]\\u202ez\\x0a  " in hostile
    # Four wide characters and an e; the accent is left out: terminals do not agree on where it stands.
    (wide,) = (number for number, line in enumerate(lines) if "订" in line)
    at = lines[2].index("limit")
    assert all(terminal.screen.buffer[row][at + 5].data == " " for row in range(2, wide + 1))
    assert "".join(terminal.screen.buffer[wide][at - 3 + x].data for x in range(8)) == "1.0 MB/s"


def test_quitting_leaves_the_terminal_as_it_was(start: Start) -> None:
    terminal = start()
    terminal.until_shown("bob")
    assert termios.tcgetattr(terminal.descriptor) != terminal.modes_before
    terminal.type("q")
    assert terminal.wait() == 0
    assert terminal.modes == terminal.modes_before
    assert terminal.raw.rindex(b"\x1b[?1049l") > terminal.raw.rindex(b"\x1b[?1049h")
    assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l")


def test_a_signal_to_end_is_obeyed_as_q_is(start: Start) -> None:
    terminal = start()
    terminal.until_shown("bob")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 0
    assert b"\x1b[?1049l" in terminal.raw


def test_it_ends_and_cleans_up_when_the_connection_is_gone(start: Start, tmp_path: Path) -> None:
    terminal = start(environment={"TMPDIR": str(tmp_path)})
    terminal.until_shown("bob")
    assert [path.name[:7] for path in tmp_path.iterdir()] == ["kquota-"]
    terminal.hang_up()
    assert terminal.wait() == 128 + signal.SIGHUP
    assert not list(tmp_path.iterdir())


def test_vanishing_tables_are_told_and_waited_for(start: Start, tmp_path: Path, tables: Path) -> None:
    root = tmp_path / "tables"
    shutil.copytree(tables, root)
    terminal = start(root=root)
    terminal.until_shown("bob")
    shutil.rmtree(root)
    terminal.type("r")
    lines = terminal.until_shown(f"tables path {str(root)[:40]}")  # the end of a long path is cut
    assert "bob" in "\n".join(lines), "what was read last stays"
    shutil.copytree(tables, root)
    terminal.until_shown("4 buckets;")
    write_table(root, "decisions", decision(60, bucket_user="newcomer", quota_used_percent=99.0))
    terminal.until_shown("newcomer")


def test_without_colours_there_are_none(start: Start) -> None:
    terminal = start(environment={"NO_COLOR": "1"})
    terminal.until_shown("bob")
    assert not re.search(rb"\x1b\[(?:\d+;)*(?:3[0-7]|9\d|38;|48;|4[0-7])", terminal.raw)


def test_a_terminal_that_cannot_is_told_what_can(start: Start) -> None:
    terminal = start(environment={"TERM": "dumb"})
    assert terminal.wait() == 1
    assert terminal.lines()[0].startswith(
        "kquota: this terminal cannot move its cursor (TERM): kquota top --once"
    )
