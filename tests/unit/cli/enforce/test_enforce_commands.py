"""`kquota enforce`: from the offender in the tables to a quota that is lowered and put back, at a person's command."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.cli.exit_codes import NOTHING
from kquota_spark.config.loader import load_settings
from kquota_spark.store.reading import query
from tests.support.enforcement.enforcement_cluster import NOW_MS, InMemoryCluster
from tests.support.programs.command_output import as_json, run, shown

MINUTE_MS = 60_000
LOG = "select event, actor, author, approver, ticket from enforcement_log order by sequence"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryCluster:
    return InMemoryCluster(tmp_path, monkeypatch, "approve")


def enforce(cluster: InMemoryCluster, *arguments: str) -> tuple[int, str, str]:
    return run("enforce", *arguments, "--config", str(cluster.config))


def planned(cluster: InMemoryCluster) -> str:
    """The name of the plan that `plan` makes."""
    [row] = as_json("enforce", "plan", "--config", str(cluster.config))["rows"]
    return str(row["plan_id"])


def test_a_plan_names_the_offender_with_units_reason_and_end_and_sends_nothing(
    cluster: InMemoryCluster,
) -> None:
    text = shown("enforce", "plan", "--config", str(cluster.config))
    print(text)
    assert "~ users/alice\n      change     producer_byte_rate 1.0 MB/s -> 500 kB/s (-50 %)\n" in text
    assert "why        repeat-offenders: took 200 % of its limit" in text
    assert "until      2026-11-21 05:57:01 UTC\n" in text  # 15 min after 05:42:01
    assert f"kquota enforce approve {planned(cluster)} --yes" in text
    assert "bob" not in text
    assert cluster.of_alice == "1000000"


def test_without_yes_nothing_is_approved_applied_or_rolled_back(cluster: InMemoryCluster) -> None:
    plan = planned(cluster)
    before = as_json("enforce", "show", plan, "--config", str(cluster.config))
    assert enforce(cluster, "rollback", plan) == (NOTHING, "nothing of it is in force\n", "")
    for command, word in (("approve", "approved"), ("apply", "sent")):
        code, out, err = enforce(cluster, command, plan)
        assert (code, err) == (NOTHING, "")
        assert out.endswith(f"\nnothing was {word}; add --yes to do it\n")
    assert as_json("enforce", "show", plan, "--config", str(cluster.config)) == before
    assert cluster.of_alice == "1000000"


def test_approve_apply_and_rollback_change_the_quota_and_put_it_back_to_the_letter(
    cluster: InMemoryCluster,
) -> None:
    plan = planned(cluster)
    code, out, _ = enforce(cluster, "apply", plan, "--yes")
    said = f"nothing was sent: approve it first: kquota enforce approve {plan} --yes\n"
    assert (code, out) == (NOTHING, said)
    code, out, _ = enforce(cluster, "approve", plan, "--yes")
    assert code == 0
    assert "approved: users/alice producer_byte_rate 1.0 MB/s -> 500 kB/s (-50 %)" in out
    assert f"(plan {plan} step 1, eve)" in out
    code, out, _ = enforce(cluster, "apply", plan, "--yes")
    *lines, undo = out.splitlines()
    assert (code, [line.split()[1] for line in lines]) == (0, ["applied:"])
    assert undo.startswith("undo: ")
    assert cluster.of_alice == "500000.0"
    [row] = as_json("enforce", "show", "--config", str(cluster.config))["rows"]
    assert (row["status"], row["actor"], row["value_before"], row["fencing"]) == (
        "applied",
        "eve",
        1e6,
        2,
    )  # the 2nd apply
    code, out, _ = enforce(cluster, "rollback", plan)
    back = "users/alice producer_byte_rate 500 kB/s -> 1.0 MB/s (+100 %)"
    said = f"would put back: {back} (step 1)\n\nnothing was put back; add --yes to do it\n"
    assert (code, out) == (NOTHING, said)
    code, out, _ = enforce(cluster, "rollback", plan, "--yes", "--ticket", "CHG-9")
    assert (code, [line.split("; ")[0].split(" ", 1)[1] for line in out.splitlines()]) == (
        0,
        [f"restored: {back}"],
    )
    assert out.count(f"(plan {plan} step 1, eve, ticket CHG-9)") == 1
    assert cluster.of_alice == "1000000"  # not 1000000.0, as a float would be written
    assert enforce(cluster, "rollback", plan, "--yes")[:2] == (NOTHING, "nothing of it is in force\n")
    said = "nothing was approved: nothing in it waits (restored)\n"
    assert enforce(cluster, "approve", plan, "--yes")[:2] == (NOTHING, said)


def test_the_undo_of_apply_is_the_rollback_of_the_plan(cluster: InMemoryCluster) -> None:
    (cluster.root / "conf").mkdir()
    cluster.config.rename(cluster.root / "conf" / "kquota.yaml")
    [row] = as_json("enforce", "plan")["rows"]
    plan = row["plan_id"]
    assert run("enforce", "approve", plan, "--yes")[0] == 0
    undo = run("enforce", "apply", plan, "--yes", "--config", "conf/kquota.yaml")[1].splitlines()[-1]
    assert undo == f"undo: kquota enforce rollback {plan} --yes --config conf/kquota.yaml"
    assert cluster.of_alice == "500000.0"
    assert run(*undo.split()[2:])[0] == 0
    assert cluster.of_alice == "1000000"


def test_a_plan_of_mode_observe_says_what_to_do_and_is_approved_after_the_mode_was_raised(
    cluster: InMemoryCluster,
) -> None:
    cluster.set_mode("observe")
    plan = planned(cluster)
    do = (
        f"repeat-offenders may only observe: set mode: approve in {cluster.policy_file}, at the top and for the "
        f"policy; then kquota enforce approve {plan} --yes\n"
    )
    assert enforce(cluster, "approve", plan, "--yes")[:2] == (NOTHING, f"nothing was approved: {do}")
    assert enforce(cluster, "apply", plan, "--yes")[:2] == (NOTHING, f"nothing was sent: {do}")
    status = " ".join(shown("enforce", "status", "--config", str(cluster.config)).split())
    assert "observe; planned by eve; until 2026-11-21 05:57:01 UTC; written down only" in status
    assert cluster.of_alice == "1000000"
    cluster.set_mode("approve")
    assert enforce(cluster, "approve", plan, "--yes")[0] == 0
    said = "nothing was approved: it is approved already; kquota enforce run sends it at its next look\n"
    assert enforce(cluster, "approve", plan, "--yes")[:2] == (NOTHING, said)
    assert enforce(cluster, "apply", plan, "--yes")[0] == 0
    assert cluster.of_alice == "500000.0"


def test_a_plan_that_waited_for_too_long_is_not_approved(cluster: InMemoryCluster) -> None:
    plan = planned(cluster)
    cluster.now_ms += 15 * MINUTE_MS
    said = "nothing was approved: nobody approved it before its time was over; kquota enforce plan makes a new one\n"
    assert enforce(cluster, "approve", plan, "--yes")[:2] == (NOTHING, said)
    assert "waiting: none" in shown("enforce", "status", "--config", str(cluster.config))


def test_with_a_second_person_nobody_approves_what_they_planned(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.require_second_person()
    plan = planned(cluster)
    assert enforce(cluster, "approve", plan, "--yes") == (
        1, "",
        f"kquota: {plan} is not approved: eve planned it, and enforcement.approval asks for a second person\n",
    )  # fmt: skip
    monkeypatch.setattr("kquota_spark.cli.enforce.freeze.getpass.getuser", lambda: "bob")
    code, out, _ = enforce(cluster, "approve", plan, "--yes", "--ticket", "CHG-7")
    assert (code, f"(plan {plan} step 1, bob, ticket CHG-7)" in out) == (0, True)
    assert enforce(cluster, "apply", plan, "--yes")[0] == 0
    config = ("--config", str(cluster.config))
    people = "planned by eve, approved by bob, ticket CHG-7"
    assert f"      who        {people}\n" in shown("enforce", "show", plan, *config)
    assert f"approve; {people}; until" in " ".join(shown("enforce", "status", *config).split())
    [row] = as_json("enforce", "show", plan, *config)["rows"]
    assert (row["author"], row["approver"], row["ticket"], row["actor"]) == ("eve", "bob", "CHG-7", "bob")
    log = query(load_settings(cluster.config), ["enforcement_log"], LOG).rows
    assert log == [
        ("planned", "eve", "eve", None, None),
        ("approved", "bob", "eve", "bob", "CHG-7"),
        ("sending", "bob", "eve", "bob", "CHG-7"),
        ("applied", "bob", "eve", "bob", "CHG-7"),
    ]


def test_what_a_guard_refuses_exits_with_3_and_says_which_and_why(cluster: InMemoryCluster) -> None:
    plan = planned(cluster)
    enforce(cluster, "approve", plan, "--yes")
    run("freeze", "--reason", "deployment", "--config", str(cluster.config))
    code, out, _ = enforce(cluster, "apply", plan, "--yes")
    assert code == 3
    assert "refused by frozen: users/alice" in out
    assert "[frozen by eve: deployment]" in out
    assert cluster.of_alice == "1000000"


def test_decisions_that_are_old_make_a_plan_that_is_refused(cluster: InMemoryCluster) -> None:
    cluster.now_ms = NOW_MS + 10 * MINUTE_MS
    text = shown("enforce", "plan", "--config", str(cluster.config))
    assert "0 changes, 1 refused" in text
    assert "refused    stale: decisions are 10.0 min old, more than 2 min" in text


def test_a_missing_plan_and_a_wrong_policy_file_are_said_in_one_line(
    cluster: InMemoryCluster,
) -> None:
    assert enforce(cluster, "show")[0::2] == (
        1, f"kquota: there is no plan yet in {cluster.root}/tables: kquota enforce plan makes one\n"
    )  # fmt: skip
    planned(cluster)
    code, _, err = enforce(cluster, "apply", "p-1")
    assert (code, err) == (1, "kquota: there is no plan p-1: kquota enforce status lists those that wait\n")
    cluster.policy_file.write_text("mode: full\n", encoding="utf-8")
    code, _, err = enforce(cluster, "plan")
    assert code == 1
    assert err.startswith(f"kquota: {cluster.policy_file}: mode: 'full', expected")


def test_status_tells_mode_switch_enforcer_what_is_in_force_waits_and_was_refused(
    cluster: InMemoryCluster,
) -> None:
    def status() -> str:
        return shown("enforce", "status", "--config", str(cluster.config))

    head, _, rest = status().partition("\n\n")
    switch = f"{cluster.root}/tables/_kquota/frozen-demo.json, no enforcer has read it yet"
    assert head.replace(" ", "").replace("\n", "") == (
        f"mode approve (repeat-offenders approve) switch not frozen {switch}".replace(" ", "")
    )
    assert (
        rest
        == """\
in force: none

waiting: none

refused, newest first: none

enforcer none has run yet
"""
    )
    plan = planned(cluster)
    assert "waiting: 1 change\n  users/alice producer_byte_rate 1.0 MB/s -> 500 kB/s (-50 %)\n" in status()
    enforce(cluster, "approve", plan, "--yes")
    enforce(cluster, "apply", plan, "--yes")
    run("freeze", "--reason", "look\x1b[2J", "--config", str(cluster.config))
    text = status()
    assert "switch   FROZEN: frozen since 2026-11-21 05:42:01 UTC by eve: look\\x1b[2J\n" in text
    assert "in force: 1 change\n" in text
    people = "planned by eve, approved by eve"
    assert (
        f"repeat-offenders, plan {plan} step 1, approve; {people}; until 2026-11-21 05:57:01 UTC"
        in " ".join(text.split())
    )
    cluster.now_ms = NOW_MS + 16 * MINUTE_MS
    assert "its time was over at 2026-11-21 05:57:01 UTC: is kquota enforce run up?" in " ".join(
        status().split()
    )
    answer = as_json("enforce", "status", "--config", str(cluster.config))
    assert answer["mode"] == "approve"
    assert answer["frozen"]["reason"] == "look\x1b[2J"
    assert [(row["entity"], row["status"]) for row in answer["rows"]] == [("users/alice", "applied")]
