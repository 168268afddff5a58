"""`kquota override`, `freeze` and `exempt`: what a person does by hand, through the same guards and the same log."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

from kquota_spark.cli.exit_codes import NOTHING, REFUSED
from kquota_spark.cli.main import main
from kquota_spark.config.loader import load_settings
from kquota_spark.enforce.changes import LogEntry
from kquota_spark.enforcement.edges.log import EnforcementLog
from tests.support.enforcement.enforcement_cluster import InMemoryCluster
from tests.support.programs.command_output import as_json, run, shown
from tests.support.tables.table_rows import decision, write_table

SET = ("--key", "producer_byte_rate", "--value", "600000", "--for", "2h", "--reason", "backfill")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryCluster:
    return InMemoryCluster(tmp_path, monkeypatch, "approve")


def log_of(cluster: InMemoryCluster) -> list[LogEntry]:
    return EnforcementLog(load_settings(cluster.config)).entries()


def kquota(cluster: InMemoryCluster, *arguments: str) -> tuple[int, str, str]:
    return run(*arguments, "--config", str(cluster.config))


def test_an_override_is_shown_first_and_writes_nothing(cluster: InMemoryCluster) -> None:
    code, out, err = kquota(cluster, "override", "set", "--user", "alice", *SET)
    assert (code, err) == (NOTHING, "")
    assert "~ users/alice\n      change     producer_byte_rate 1.0 MB/s -> 600 kB/s (-40 %)\n" in out
    assert "why        override: backfill\n      until      2026-11-21 07:42:01 UTC\n" in out
    assert out.endswith("\nnothing was sent; add --yes to do it\n")
    assert cluster.of_alice == "1000000"
    assert not (cluster.root / "tables" / "enforcement_log").exists()


def test_an_override_is_set_listed_and_expires_by_hand_to_what_was_there(cluster: InMemoryCluster) -> None:
    code, out, _ = kquota(cluster, "override", "set", "--user", "alice", *SET, "--yes")
    said = [line.split()[1] for line in out.splitlines()[:-2]]
    assert (code, said) == (0, ["applied:"])
    assert "it ends at 2026-11-21 07:42:01 UTC if kquota enforce run is up then" in out
    assert cluster.leases.command == "kquota override set"
    status = shown("enforce", "status", "--config", str(cluster.config))
    assert status.endswith("\nenforcer the lease was held last by kquota override set on eve\n")
    assert cluster.of_alice == "600000.0"
    # A lower value for a client that was throttled all the time is a person's wish, and no penalty of a policy.
    assert {entry.proposal.is_penalty for entry in log_of(cluster)} == {False}
    [row] = as_json("override", "list", "--config", str(cluster.config))["rows"]
    assert (row["entity"], row["actor"], row["policy"], row["seconds"], row["throttled_seconds"]) == (
        "users/alice", "eve", "override", 120, 120
    )  # fmt: skip
    plan = row["plan_id"]
    assert (
        shown("override", "list", "--config", str(cluster.config))
        == f"""\
plan        entity       key                      now  until (UTC)     by   approver  ticket
{plan}  users/alice  producer_byte_rate  600 kB/s  11-21 07:42:01  eve  eve       -
kquota override expire PLAN puts back what was there before
not shown: before, reason (a wider terminal shows more, --output csv everything)
"""
    )
    assert kquota(cluster, "override", "expire", plan)[:2] == (
        NOTHING,
        (
            "would put back: users/alice producer_byte_rate 600 kB/s -> 1.0 MB/s (+66.7 %) (step 1)\n\n"
            "nothing was put back; add --yes to do it\n"
        ),
    )
    assert kquota(cluster, "override", "expire", plan, "--yes")[0] == 0
    assert cluster.of_alice == "1000000"
    assert kquota(cluster, "override", "expire", plan, "--yes")[:2] == (
        NOTHING,
        "nothing of it is in force\n",
    )
    assert kquota(cluster, "override", "list")[1] == "no override is in force\n"


def test_the_undo_of_an_override_is_its_end(cluster: InMemoryCluster) -> None:
    cluster.config.rename("k.yaml")
    _, out, _ = run("override", "set", "--user", "alice", *SET, "--yes", "--config", "k.yaml")
    [row] = as_json("override", "list", "--config", "k.yaml")["rows"]
    undo = out.splitlines()[-1]
    assert undo == f"undo: kquota override expire {row['plan_id']} --yes --config k.yaml"
    assert cluster.of_alice == "600000.0"
    assert run(*undo.split()[2:])[0] == 0
    assert cluster.of_alice == "1000000"


def test_a_quota_that_was_not_set_is_not_set_again_afterwards(cluster: InMemoryCluster) -> None:
    del cluster.nodes["users/bob"]
    assert kquota(cluster, "override", "set", "--user", "bob", "--client", "etl", *SET, "--yes")[0] == 0
    assert cluster.nodes["users/bob/clients/etl"] == {"producer_byte_rate": "600000.0"}
    [row] = as_json("override", "list", "--config", str(cluster.config))["rows"]
    assert kquota(cluster, "override", "expire", row["plan_id"], "--yes")[0] == 0
    assert set(cluster.nodes) == {"users/alice"}


def test_guards_hold_for_persons_too_and_exit_with_3_also_when_only_shown(cluster: InMemoryCluster) -> None:
    above = ("--key", "producer_byte_rate", "--value", "9e6", "--for", "1h", "--reason", "more")
    for yes in ((), ("--yes",)):
        code, out, _ = kquota(cluster, "override", "set", "--user", "alice", *above, *yes)
        assert code == 3
        assert "9.0 MB/s is not between 100 kB/s and 4.0 MB/s" in out
    assert cluster.of_alice == "1000000"


def test_in_observe_mode_a_person_sends_nothing_either(cluster: InMemoryCluster) -> None:
    cluster.set_mode("observe")
    code, out, _ = kquota(cluster, "override", "set", "--user", "alice", *SET, "--yes")
    [row] = as_json("enforce", "show", "--config", str(cluster.config))["rows"]
    said = f"nothing was sent: mode observe in {cluster.policy_file}; after mode: approve there, run "
    assert code == NOTHING
    assert out.endswith(f"{said}kquota enforce approve {row['plan_id']} --yes\n")
    assert cluster.of_alice == "1000000"


def test_an_override_lasts_a_week_at_most_or_as_the_policy_file_says(cluster: InMemoryCluster) -> None:
    where = f"(guards.longest_override in {cluster.policy_file})"
    for end, lasts in (("--for=500d", "500 d"), ("--until=2026-11-28T05:42:02Z", "168 h")):
        code, out, err = kquota(
            cluster, "override", "set", "--user", "alice", *SET[:4], *SET[6:], end, "--yes"
        )
        said = f"an override may last 7 d at most {where}, and this one would last {lasts}"
        assert (code, out, err) == (1, "", f"kquota: {said}\n")
    text = cluster.policy_file.read_text(encoding="utf-8")
    cluster.policy_file.write_text(
        text.replace("guards:", "guards:\n  longest_override: 1 h"), encoding="utf-8"
    )
    assert "at most 1 h" not in kquota(cluster, "override", "set", "--user", "alice", *SET)[2]
    assert kquota(cluster, "override", "set", "--user", "alice", *SET)[2] == (
        f"kquota: an override may last 1 h at most {where}, and this one would last 2 h\n"
    )
    assert not (cluster.root / "tables" / "enforcement_log").exists()


def test_a_second_person_approves_an_override_also_in_mode_enforce(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.require_second_person()
    cluster.set_mode("enforce")
    code, out, _ = kquota(cluster, "override", "set", "--user", "alice", *SET, "--ticket", "INC-4", "--yes")
    [row] = as_json("enforce", "show", "--config", str(cluster.config))["rows"]
    above = kquota(cluster, "override", "set", "--user", "alice", *SET[:3], "9e6", *SET[4:], "--yes")
    assert (above[0], above[1].splitlines()[-1]) == (
        REFUSED,
        "nothing is in force: see kquota enforce status",
    )
    approve = ("enforce", "approve", row["plan_id"], "--yes")
    said = "nothing was sent: enforcement.approval asks for a second person, who runs "
    assert code == NOTHING
    assert out.endswith(f"{said}kquota {' '.join(approve)}\n")
    assert kquota(cluster, *approve)[0] == 1
    assert cluster.of_alice == "1000000"
    monkeypatch.setattr("kquota_spark.cli.enforce.freeze.getpass.getuser", lambda: "bob")
    assert kquota(cluster, *approve)[0] == 0
    assert kquota(cluster, "enforce", "apply", row["plan_id"], "--yes")[0] == 0
    assert cluster.of_alice == "600000.0"
    [line] = as_json("override", "list", "--config", str(cluster.config))["rows"]
    assert (line["author"], line["approver"], line["ticket"]) == ("eve", "bob", "INC-4")


def test_an_override_again_with_another_end_takes_the_place_of_ones_own_that_waits(
    cluster: InMemoryCluster,
) -> None:
    cluster.require_second_person()
    for length in ("2h", "3h"):
        assert (
            kquota(cluster, "override", "set", "--user", "alice", *SET[:5], length, *SET[6:], "--yes")[0]
            == NOTHING
        )
    config = ("--config", str(cluster.config))
    first, second = dict.fromkeys(entry.step_id.plan_id for entry in log_of(cluster))
    text = shown("enforce", "show", first, *config)
    assert f"      now        superseded; replaced by plan {second} of the same author\n" in text
    assert "somebody else" not in text
    [row] = as_json("enforce", "show", second, *config)["rows"]
    assert row["expires_at"] == "2026-11-21T08:42:01Z"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--user", "a", *SET[:4], "--until", "2026-11-21T05:42:01Z", "--reason", "x"),
            "--until: 2026-11-21 05:42:01 UTC is over, expected a time to come",
        ),
        (
            ("--user", "a", *SET[:6], "--reason", " "),
            "--reason: expected 1 to 500 characters: others will ask why",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    cluster: InMemoryCluster, arguments: tuple[str, ...], said: str
) -> None:
    assert kquota(cluster, "override", "set", *arguments) == (1, "", f"kquota: {said}\n")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "much", "1.5", "1KB", "200%"])
def test_a_value_is_a_number_above_0(
    cluster: InMemoryCluster, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = ("--key", "producer_byte_rate", f"--value={value}")
    with pytest.raises(SystemExit) as ended:
        main(["override", "set", "--user", "a", *key, *SET[4:], "--config", str(cluster.config)])
    assert ended.value.code == 2
    expected = "expected a whole number of bytes per second, above 0, e.g. 2000000 or 2MB/s"
    said = f"kquota override set: argument --value: {value!r}, {expected}"
    assert capsys.readouterr().err.splitlines()[0] == said


def test_a_value_may_have_a_unit(cluster: InMemoryCluster) -> None:
    in_kilobytes = ("--key", "producer_byte_rate", "--value", "600kB/s", *SET[4:])
    assert kquota(cluster, "override", "set", "--user", "alice", *in_kilobytes, "--yes")[0] == 0
    assert cluster.of_alice == "600000.0"


def test_freeze_needs_a_reason_and_unfreeze_says_what_was(cluster: InMemoryCluster) -> None:
    assert kquota(cluster, "freeze", "--reason", " ")[0] == 1
    assert kquota(cluster, "freeze", "--reason", "incident 7")[0] == 0
    assert kquota(cluster, "override", "set", "--user", "alice", *SET, "--yes")[0] == 3
    said = "frozen since 2026-11-21 05:42:01 UTC by eve: incident 7"
    assert kquota(cluster, "unfreeze")[1] == f"cluster demo is unfrozen: was {said}\n"
    assert kquota(cluster, "unfreeze")[1] == "cluster demo was not frozen\n"
    assert cluster.of_alice == "1000000"


def test_frozen_is_said_before_anything_else(cluster: InMemoryCluster) -> None:
    plan = as_json("enforce", "plan", "--config", str(cluster.config))["rows"][0]["plan_id"]
    assert kquota(cluster, "override", "set", "--user", "alice", *SET, "--yes")[0] == 0
    cluster.set_mode("observe")
    kquota(cluster, "freeze", "--reason", "incident 7")
    out = kquota(cluster, "override", "set", "--user", "alice", *SET)[1]
    said = "refused frozen: frozen by eve: incident 7 (kquota unfreeze); changed: it is 600 kB/s in the cluster already"
    assert said in " ".join(out.split())
    assert kquota(cluster, "enforce", "apply", plan, "--yes")[:2] == (
        NOTHING,
        "nothing was sent: frozen by eve: incident 7 (kquota unfreeze)\n",
    )


def test_a_rollback_by_a_person_goes_through_while_it_is_frozen(cluster: InMemoryCluster) -> None:
    kquota(cluster, "override", "set", "--user", "alice", *SET, "--yes")
    [row] = as_json("override", "list", "--config", str(cluster.config))["rows"]
    kquota(cluster, "freeze", "--reason", "stop")
    assert kquota(cluster, "enforce", "rollback", row["plan_id"], "--yes")[0] == 0
    assert cluster.of_alice == "1000000"


def test_an_exempt_name_is_refused_from_the_next_look_on(cluster: InMemoryCluster) -> None:
    file = cluster.exempt_file
    code, out, _ = kquota(cluster, "exempt", "add", "--user", "alice")
    assert (code, out) == (0, f"user alice is exempt now ({file})\n")
    assert file.read_text(encoding="utf-8") == "# nobody\nusers/alice\n"
    again = kquota(cluster, "exempt", "add", "--user", "alice")
    assert again[:2] == (0, f"user alice was exempt before ({file})\n")
    assert as_json("exempt", "list", "--config", str(cluster.config))["rows"] == [
        {"kind": "user", "name": "alice"}
    ]
    code, out, _ = kquota(cluster, "override", "set", "--user", "alice", *SET, "--yes")
    assert code == 3
    assert "exempt by alice" in out
    assert kquota(cluster, "exempt", "remove", "--user", "alice")[0] == 0
    assert file.read_text(encoding="utf-8") == "# nobody\n"
    assert (
        kquota(cluster, "exempt", "remove", "--user", "alice")[2] == f"kquota: user alice is not in {file}\n"
    )


def test_a_name_in_the_policy_file_is_removed_there(cluster: InMemoryCluster) -> None:
    text = cluster.policy_file.read_text(encoding="utf-8")
    cluster.policy_file.write_text(text.replace("{file: exempt.txt}", "{file: exempt.txt, users: [bob]}"))
    assert kquota(cluster, "exempt", "add", "--user", "bob")[1].startswith("user bob was exempt before")
    assert kquota(cluster, "exempt", "remove", "--user", "bob")[2] == (
        f"kquota: user bob is in exempt.users of {cluster.policy_file}: remove it there\n"
    )
    cluster.policy_file.write_text(text.replace("exempt: {file: exempt.txt}\n", ""))
    assert kquota(cluster, "exempt", "add", "--user", "bob", "--force")[2] == (
        f"kquota: {cluster.policy_file}: exempt.file names no file: set exempt: {{file: exempt.txt}}, and make it\n"
    )


def test_a_name_that_nobody_has_ever_seen_needs_force(cluster: InMemoryCluster) -> None:
    code, _, err = kquota(cluster, "exempt", "add", "--client", "elt")
    assert code == 1
    assert (
        err == "kquota: exempt.client_ids: 'elt' is not known, did you mean 'etl'?; --force adds it anyway\n"
    )
    assert kquota(cluster, "exempt", "add", "--client", "etl")[0] == 0  # in usage
    assert kquota(cluster, "exempt", "add", "--client", "elt", "--force")[0] == 0
    assert kquota(cluster, "exempt", "add", "--pattern", "mm-(")[0] == 1
    assert kquota(cluster, "exempt", "add", "--pattern", "mm-.*")[0] == 0
    rows = as_json("exempt", "list", "--config", str(cluster.config))["rows"]
    assert [tuple(row.values()) for row in rows] == [
        ("client", "etl"),
        ("client", "elt"),
        ("pattern", "mm-.*"),
    ]


def test_a_terminal_that_lacks_a_character_is_told_its_escape(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["freeze", "--reason", "wegen Stö\x1b[2J", "--config", str(cluster.config)]) == 0
    assert rb"by eve: wegen St\xf6\x1b[2J; kquota unfreeze lets it continue" in raw.getvalue()


def test_an_empty_name_is_refused(cluster: InMemoryCluster) -> None:
    code, out, err = kquota(cluster, "exempt", "add", "--user", "", "--force")
    assert (code, out, err) == (1, "", "kquota: --user : an empty name, expected a name\n")
    assert cluster.exempt_file.read_text(encoding="utf-8") == "# nobody\n"


def test_a_person_corrects_an_override_at_once_and_both_end_at_what_was_there(
    cluster: InMemoryCluster,
) -> None:
    more = [*SET[:3], "700000", *SET[4:]]
    for words in (SET, more):
        assert kquota(cluster, "override", "set", "--user", "alice", *words, "--yes")[0] == 0
    assert cluster.of_alice == "700000.0"
    rows = as_json("override", "list", "--config", str(cluster.config))["rows"]
    for row in reversed(rows):
        assert kquota(cluster, "override", "expire", row["plan_id"], "--yes")[0] == 0
    assert cluster.of_alice == "1000000"


LARGE = ("--key", "producer_byte_rate", "--value", "3e6", "--for", "1h", "--reason", "more")


def test_a_persons_value_rests_on_no_decision_and_may_be_any_step_within_the_bounds(
    cluster: InMemoryCluster,
) -> None:
    over = {"rate_per_s": 2.1e6, "quota_used_percent": 210.0, "throttled_requests": 1}
    decisions = (decision(n, **over, is_certain=False, requests=4, uncertain=2) for n in range(120))
    shutil.rmtree(cluster.root / "tables" / "decisions")
    write_table(cluster.root / "tables", "decisions", *decisions)
    code, out, _ = kquota(cluster, "override", "set", "--user", "alice", *LARGE, "--yes")
    assert (code, cluster.of_alice) == (0, "3000000.0")  # +200 %, where policies may take 50 %
    assert "applied: users/alice producer_byte_rate 1.0 MB/s -> 3.0 MB/s (+200 %)" in out


def test_all_guards_that_refuse_a_person_come_at_once_with_the_line_to_edit(cluster: InMemoryCluster) -> None:
    assert kquota(cluster, "override", "set", "--user", "alice", *SET, "--yes")[0] == 0
    kquota(cluster, "exempt", "add", "--user", "alice")
    above = ("--key", "producer_byte_rate", "--value", "9e6", "--for", "1h", "--reason", "more")
    code, out, _ = kquota(cluster, "override", "set", "--user", "alice", *above)
    file = cluster.policy_file
    said = [
        f"exempt: exempt by alice (exempt in {file})",
        f"bounds: 9.0 MB/s is not between 100 kB/s and 4.0 MB/s (guards.bounds.producer_byte_rate in {file})",
    ]
    assert code == REFUSED
    # The path of the file may be cut by the end of a line, wherever that is.
    assert "".join(f"refused {'; '.join(said)}".split()) in "".join(out.split())
    assert out.endswith("\nnothing was sent: a guard refused it\n")


def test_while_it_is_frozen_that_is_the_first_reason_of_a_refusal(cluster: InMemoryCluster) -> None:
    assert kquota(cluster, "override", "set", "--user", "alice", *SET, "--yes")[0] == 0
    run("freeze", "--reason", "incident 7", "--config", str(cluster.config))
    code, out, _ = kquota(cluster, "override", "set", "--user", "alice", *LARGE)
    assert code == REFUSED
    assert "refused frozen: frozen by eve: incident 7 (kquota unfreeze)" in " ".join(out.split())


def test_a_plan_that_is_frozen_and_may_no_longer_be_sent_is_refused_by_the_switch(
    cluster: InMemoryCluster,
) -> None:
    kquota(cluster, "enforce", "plan")
    [row] = as_json("enforce", "show", "--config", str(cluster.config))["rows"]
    assert kquota(cluster, "enforce", "approve", row["plan_id"], "--yes")[0] == 0
    run("freeze", "--reason", "incident 7", "--config", str(cluster.config))
    cluster.set_mode("observe")
    code, out, _ = kquota(cluster, "enforce", "apply", row["plan_id"], "--yes")
    assert (code, cluster.of_alice) == (REFUSED, "1000000")
    assert out.split()[1:4] == ["refused", "by", "frozen:"]
    assert out.endswith("[frozen by eve: incident 7]\n")
