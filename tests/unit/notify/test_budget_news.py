"""A budget that burns at a pace that pages is news once, and once when it has recovered: for routes of its owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.routes import Mail, Slack
from kquota_spark.errors import UserError
from kquota_spark.notify.formats.text import sentence
from kquota_spark.notify.job import checked_routes, send_trial
from tests.support.tables.table_rows import T0_MS, decision, usage, violation, write_table
from tests.support.tables.told_news import Told

QUIET_S = 6 * 3_600
"""Seconds before the first throttle: with fewer, five minutes of it are a pace of hours too."""
NAMES = ("payments", "search", "unowned")
URL = "http://127.0.0.1:1/x"


def throttle(offset_s: int, longest_ms: int, **changed: Any) -> dict[str, Any]:
    figures = {"observed_throttle_ms": longest_ms, "observed_throttled_requests": 1,
               "observed_total_throttle_ms": longest_ms}  # fmt: skip
    return decision(offset_s, **figures, **changed)


def owners(root: Path) -> str:
    path = root / "owners.yaml"
    path.write_text(
        "owners:\n"
        "  - {name: payments, users: [alice], contact: pay@example.com}\n"
        "  - {name: search, users: [bob], contact: 'room 5'}\n",
        encoding="utf-8",
    )
    return str(path)


def second_by_second(root: Path, from_s: int, to_s: int, *decisions: dict[str, Any]) -> None:
    """alice sends in each second of a period, and the decisions reach its last one."""
    write_table(root, "usage", *(usage(at_s) for at_s in range(from_s, to_s)))
    write_table(root, "decisions", *decisions, decision(to_s - 1))


def test_a_fast_burn_pages_once_and_is_armed_again_by_recovery(tmp_path: Path) -> None:
    told = Told(tmp_path, owners=owners(tmp_path))
    begin, at_ms = QUIET_S, T0_MS + QUIET_S * 1_000
    second_by_second(tmp_path, 0, begin)
    assert told.read() == {}
    # 120 s: a blip. 260 s of the hour are 14.44 times the allowed 18 s.
    second_by_second(tmp_path, begin, begin + 120, throttle(begin, 120_000))
    assert told.read() == {}
    second_by_second(tmp_path, begin + 120, begin + 260, throttle(begin + 120, 140_000))
    first = f"demo/budget_burning/payments/{at_ms + 260_000}"
    assert told.read() == {"ops": [f"{first} begins"]}
    second_by_second(tmp_path, begin + 260, begin + 270, throttle(begin + 260, 10_000))
    assert told.read() == {}
    # 279 s after the throttling, five minutes hold 21 throttled seconds: less than 7.2 %.
    second_by_second(tmp_path, begin + 270, begin + 549)
    assert told.read() == {"ops": [f"{first}/over over"]}
    assert told.read() == {}
    # The hour still has 270 s of it: the next burn pages as soon as five minutes have 21.6 s again.
    second_by_second(tmp_path, begin + 549, begin + 2_000)
    assert told.read() == {}
    second_by_second(tmp_path, begin + 2_000, begin + 2_030, throttle(begin + 2_000, 30_000))
    assert told.read() == {"ops": [f"demo/budget_burning/payments/{at_ms + 2_030_000} begins"]}
    assert told.read() == {}


def test_the_message_names_the_owner_its_contact_and_the_next_command(tmp_path: Path) -> None:
    told = Told(tmp_path, owners=owners(tmp_path))
    second_by_second(tmp_path, 0, 1_000, throttle(600, 400_000))
    assert set(told.read()) == {"ops"}
    [active] = told.notifier.state.known.active.values()
    # 400 of 1,000 s are 80 times the allowed share; 5 s were allowed, so the budget is -7,900 %.
    assert sentence(active.event, str) == (
        "owner payments: throttles burn its error budget 80.0 times too fast since 2026-11-21T05:56:40Z; "
        "400 s throttled in 1h; -7900 % of the budget of 30 days is left; contact pay@example.com; "
        "next: kquota budget --by bucket --owner payments"
    )


def test_only_routes_of_the_owner_and_of_everything_get_it(tmp_path: Path) -> None:
    routes = {
        "all": Slack(kind="slack", url=URL),
        "payments": Slack(kind="slack", url=URL, owners=("payments",)),
        "search": Slack(kind="slack", url=URL, owners=("search", "unowned")),
        "alice": Slack(kind="slack", url=URL, users=("alice",)),
        "other": Slack(kind="slack", url=URL, owners=("payments",), events=("violation",)),
    }
    told = Told(tmp_path, routes, owners=owners(tmp_path))
    second_by_second(tmp_path, 0, 1_000, throttle(600, 400_000))
    assert set(told.read()) == {"all", "payments"}


def test_violations_of_clients_of_an_owner_go_to_its_routes(tmp_path: Path) -> None:
    routes = {
        name: Slack(kind="slack", url=URL, owners=(name,)) for name in ("payments", "search", "unowned")
    }
    told = Told(tmp_path, routes, owners=owners(tmp_path))
    write_table(
        tmp_path, "violations", violation(0, None), violation(1, None, bucket_user="carol", users=["carol"]),
        violation(2, None, bucket_user="", bucket_client_id="etl", users=["alice", "bob"]),
    )  # fmt: skip
    found = {name: [event.split()[0][-2:] for event in events] for name, events in told.read().items()}
    assert found == {"payments": ["e0", "e2"], "search": ["e2"], "unowned": ["e1"]}


def test_a_mail_route_to_owners_is_one_route_for_each_contact_that_is_an_address(tmp_path: Path) -> None:
    mail = Mail(kind="mail", host="127.0.0.1", sender="kquota@example.com", to_owners=True)
    told = Told(tmp_path, {"teams": mail}, owners=owners(tmp_path))
    assert {name: route.to for name, route in told.notifier._routes.items() if isinstance(route, Mail)} == {
        "teams/payments": ("pay@example.com",)
    }
    write_table(
        tmp_path, "violations", violation(0, None), violation(1, None, bucket_user="bob", users=["bob"])
    )
    assert told.read() == {"teams/payments": ["demo/violation/e0 begins"]}


@pytest.mark.parametrize(
    ("route", "has_file", "problem"),
    [
        (Slack(kind="slack", url=URL, owners=("payment",)), True,
         f"notifications.routes.a.owners[0]: 'payment' is no owner of the file, expected one of {', '.join(NAMES)}"),
        (Slack(kind="slack", url=URL, owners=("payments",)), False,
         "notifications.routes.a.owners[0]: 'payments', and the settings name no file of owners: set owners"),
        (Mail(kind="mail", host="h", sender="a@b.example", to_owners=True), False,
         "notifications.routes.a.to_owners: the settings name no file of owners: set owners"),
    ],
)  # fmt: skip
def test_routes_to_owners_that_do_not_exist_are_refused(
    tmp_path: Path, route: Slack | Mail, has_file: bool, problem: str
) -> None:
    with pytest.raises(UserError) as refused:
        Told(tmp_path, {"a": route}, owners=owners(tmp_path) if has_file else "")
    assert str(refused.value) == problem


def test_a_test_message_to_an_owner_names_the_routes_there_are(tmp_path: Path) -> None:
    mail = Mail(kind="mail", host="127.0.0.1", port=1, sender="kquota@example.com", to_owners=True)
    told = Told(tmp_path, {"teams": mail}, owners=owners(tmp_path))
    with pytest.raises(UserError, match="expected one of teams/payments"):
        send_trial(told.settings, "teams", T0_MS)
    with pytest.raises(UserError, match="route teams/payments: the test message was not delivered"):
        send_trial(told.settings, "teams/payments", T0_MS)


def test_without_a_file_of_owners_no_budget_is_read(tmp_path: Path) -> None:
    told = Told(tmp_path)
    second_by_second(tmp_path, 0, 1_000, throttle(600, 400_000))
    assert told.read() == {}
    assert checked_routes(told.settings.notifications.routes, None)
