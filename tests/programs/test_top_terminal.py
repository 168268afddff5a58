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

from tests.support.places import ROOT
from tests.support.programs.terminal import Terminal
from tests.support.tables.table_rows import decision, rule, source, usage, violation, write_table

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
                s,
                **over,
                limit_per_s=1e6,
                rate_per_s=1.5e6,
                quota_used_percent=150.0,
                total_throttle_ms=50,
                throttled_requests=1,
                throttle_ms=50,
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
    write_table(root, "quota_rules", source(60), rule("users/alice/clients/etl", 1, producer_byte_rate=1e6))
    episode = violation(20, None, bucket_client_id="etl", observed_throttled_ms=11_200,
                        observed_throttled_requests=42)  # fmt: skip
    write_table(root, "violations", episode)
    return root


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty buckets of 99 % down to 21 %, every second; the fullest on two more brokers, at 10 %."""
    root = tmp_path_factory.mktemp("spread")
    rows = [
        decision(59, bucket_user=f"team-{n:02}", quota_used_percent=99.0 - 2 * n, users=[f"team-{n:02}"])
        for n in range(40)
    ]
    rows += [decision(59, bucket_user="team-00", broker_id=b, quota_used_percent=10.0) for b in (2, 3)]
    write_table(root, "decisions", *rows)
    return root


def chosen(terminal: Terminal) -> str:
    """The line that is drawn reversed."""
    drawn = [y for y in range(terminal.screen.lines) if terminal.screen.buffer[y][0].reverse]
    assert len(drawn) <= 1
    return terminal.lines()[drawn[0]] if drawn else ""


def press(terminal: Terminal, key: str, name: str) -> None:
    """A key after which the row with this name is chosen."""
    terminal.type(key)
    terminal.until(lambda _: name in chosen(terminal), f"{name} chosen after {key!r}")


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
    # On the newest second: 150 % of 1 MB/s; ten throttles of 50 ms.
    assert re.fullmatch(
        r"     1  produce  alice / etl  +1\.0 MB/s   1\.5 MB/s  150\.0 %       500 ms  █{12}", lines[3]
    )
    assert re.fullmatch(
        r"     1  produce  user bob  +1\.0 MB/s   900 kB/s   90\.0 %         0 ms  ▅{12}", lines[4]
    )
    assert re.fullmatch(
        r"kquota top  kafka  every 1 s +STALE: newest second [\d,]+ \w+ ago \(2026-11-21 05:40:59 UTC\)",
        lines[0],
    )
    assert lines[1] == "4 buckets; 2 at 80 % or more, 1 over the limit"
    assert lines[23].startswith("urtnb:sort R:reverse")


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


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_bucket_from_near_has_its_chart_its_clients_and_its_seconds(start: Start, columns: int) -> None:
    terminal = start("--client", "etl", "--sort", "name", columns=columns, rows=60)
    terminal.until_shown("alice / etl")
    terminal.type("\r")
    lines = terminal.until_shown("10 s mean")
    assert max(map(len, lines)) <= columns
    assert lines[2] == "alice / etl, produce, broker 1, rule u/alice/c/etl"
    # 60 throttles of 50 ms, each counted for its whole second.
    words = " ".join(lines[3:5])
    assert words.startswith("last 60 s: total delay 3.00 s, throttled requests 60 of 60, time throttled 60 s")
    # The limit is the edge of a row; at 150 % there are bars above it.
    (limit,) = (y for y, line in enumerate(lines) if line.startswith("  1.0 MB/s│"))
    assert lines[limit][11] == "━" and lines[limit - 1][11] == "█"
    assert any(line.startswith("    events│") and "A" in line for line in lines)
    # 60 seconds of 700,000 bytes and 7 requests.
    (client,) = (line.split() for line in lines if line.startswith("alice  "))
    assert client == ["alice", "etl", "700", "kB/s", "42.0", "MB", "420", "0", "ms"]
    assert any(line.startswith("05:40:59  1.0 MB/s  1.5 MB/s  150.0 %") for line in lines)
    assert lines[59].startswith("Esc:back j/k:")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_e_explains_v_lists_violations_and_escape_comes_back(start: Start, columns: int) -> None:
    terminal = start(columns=columns)
    terminal.until_shown("alice / etl")
    terminal.type("e")
    lines = terminal.until_shown("users/alice/clients/etl")
    assert any(line.startswith("limit") and "1.0 MB/s" in line for line in lines)
    assert max(map(len, lines)) <= columns
    terminal.type("v")
    lines = terminal.until_shown("05:40:20")
    # On a narrow terminal long titles take two lines.
    [title] = [line for line in lines if line.split()[:2] == ["start", "lasted"]]
    [episode] = [line for line in lines if line.split()[:2] == ["05:40:20", "open"]]
    assert "delay" in title.split()
    assert "11.2 s" in episode and "42" in episode.split()
    assert max(map(len, lines)) <= columns
    terminal.type("\x1b")
    terminal.until_shown("used▼")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_keys_choose_rows_as_in_vi_and_less(start: Start, spread: Path, columns: int) -> None:
    terminal = start(root=spread, columns=columns)
    terminal.until_shown("team-00")
    press(terminal, "j", "team-01")
    press(terminal, "\x1b[B", "team-02")
    press(terminal, "k", "team-01")
    press(terminal, "G", "team-39")
    press(terminal, "j", "team-39")
    press(terminal, "\x1b[A", "team-38")
    press(terminal, "g", "team-00")
    assert max(map(len, terminal.lines())) <= columns


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_b_shows_the_brokers_of_every_bucket_and_the_worst_alone_again(
    start: Start, spread: Path, columns: int
) -> None:
    terminal = start(root=spread, columns=columns)
    lines = terminal.until_shown("team-00")
    assert lines[1].startswith("40 buckets;")
    assert sum("team-00" in line for line in lines) == 1
    terminal.type("B")
    terminal.until_shown("42 rows per broker")
    terminal.type("/team-00\r")
    lines = terminal.until_shown("3 rows per broker")
    rows = [line for line in lines if "user team-00" in line]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert max(map(len, lines)) <= columns
    terminal.type("B")
    lines = terminal.until_shown("1 bucket;")
    (row,) = (line for line in lines if "user team-00" in line)
    assert row.startswith("1 of 3") == (columns >= 80)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_help_is_read_to_its_end(start: Start, columns: int) -> None:
    terminal = start(columns=columns)
    terminal.until_shown("bob")
    terminal.type("?")
    lines = terminal.until_shown("next and previous row")
    assert max(map(len, lines[2:])) <= 60
    assert "below" in lines[23]
    terminal.type("G")
    lines = terminal.until_shown("rule         u/ user, c/ client id, * the default")
    assert "below" not in lines[23]
    terminal.type("\x1b")
    terminal.until_shown("bob")


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
    terminal = start("--sort", "name", columns=190)
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


def test_the_page_shows_the_screens_as_they_are(start: Start, tmp_path: Path) -> None:
    page = (ROOT / "kquota_spark" / "docs" / "watching.md").read_text(encoding="utf-8")
    section = page[: page.index("## One client over time")]
    blocks = re.findall(r"```(?:console|text)\n(.*?)\n```", section, re.DOTALL)
    table, chart, walk, violations, once = (block.split("\n") for block in blocks)
    terminal = start(root=shutil.copytree(ROOT / "tests" / "data" / "tables-0.1" / "tables", tmp_path / "t"),
                     columns=80, rows=40)  # fmt: skip
    lines = terminal.until_shown("user bob")
    # After the age of the newest second, which grows.
    assert [lines[1], *lines[2:5], lines[39]] == table[2:]
    press(terminal, "j", "user bob")
    for key, lead, shown in (("\r", "user bob,", chart), ("e", "├─ 1", walk), ("v", "   start", violations)):
        terminal.type(key)
        lines = terminal.until_shown(shown[-1])
        first = next(number for number, line in enumerate(lines) if line.startswith(lead))
        assert lines[first : first + len(shown)] == shown
    assert once[0].startswith("$ kquota top --tables ")
    terminal = start("--once", "--sort", "delay", "--limit", "1", root=tmp_path / "t", columns=100)
    assert terminal.wait() == 0
    stale, *rows = terminal.lines()[: len(once) - 1]
    assert stale.startswith("STALE: newest second ") and stale.endswith(once[1].partition(" ago ")[2])
    assert rows == once[2:]
