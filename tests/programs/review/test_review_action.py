"""The action of a pull request: its steps run as GitHub runs them, and write one comment that each push updates."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kquota_spark.model.quotas.entities import Entity
from tests.support.places import CONF, ROOT
from tests.support.reports.reviewed_tables import BASE, PRODUCE, Quotas, quota_file, write_reviewed_tables
from tests.tools import JQ, found

FOLDER = CONF / "github"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
_INPUT = re.compile(r"\$\{\{ *inputs\.([a-z-]+) *\}\}")
_OUTPUT = re.compile(r"\$\{\{ *steps\.review\.outputs\.verdict *\}\}")
_GH = """\
#!{python}
import json, os, subprocess, sys
words, store = sys.argv[1:], {store!r}
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(words) + "\\n")
if {is_refused!r} and "--method" in words:
    sys.exit("HTTP 403: Resource not accessible by integration")
comments = json.load(open(store))
method = words[words.index("--method") + 1] if "--method" in words else "GET"
if method == "GET":
    sys.exit(subprocess.run([{jq!r}, words[words.index("--jq") + 1]], input=json.dumps(comments), text=True).returncode)
body = open(words[words.index("--field") + 1].removeprefix("body=@")).read()
path = next(word for word in words if word.startswith("repos/"))
if method == "POST":
    comments.append({{"id": 100 + len(comments), "user": {{"login": "github-actions[bot]"}}, "body": body}})
else:
    [one] = [one for one in comments if str(one["id"]) == path.rpartition("/")[2]]
    one["body"] = body
json.dump(comments, open(store, "w"))
"""
_PROGRAM = '#!/bin/sh\nexec {python} -m kquota_spark.cli.main "$@"\n'
OTHERS = {"id": 7, "user": {"login": "mallory"}, "body": "<!-- kquota review -->\n\nharmless, believe me"}


class Workflow:
    """A repository with a pull request: its runner, its comments, and the calls of the API."""

    def __init__(self, root: Path, *, is_refused: bool = False) -> None:
        self.root = root
        self.settings = write_reviewed_tables(root)
        self._programs = root / "programs"
        self._programs.mkdir()
        self._calls, self._store = root / "calls", root / "comments.json"
        self._calls.touch()
        self._store.write_text(json.dumps([OTHERS]))
        python, jq = sys.executable, found(JQ)
        made = _GH.format(
            python=python, jq=jq, store=str(self._store), calls=str(self._calls), is_refused=is_refused
        )
        for name, text in (("gh", made), ("kquota", _PROGRAM.format(python=python))):
            (self._programs / name).write_text(text)
            (self._programs / name).chmod(stat.S_IRWXU)

    def run(self, **inputs: str) -> tuple[dict[str, int], str, str]:
        """One push: the exit code of each step that ran, the verdict, and what the steps printed."""
        temp = self.root / "temp"
        shutil.rmtree(temp, ignore_errors=True)
        temp.mkdir()
        given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        given |= {"settings": str(self.settings), "package": ""}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        codes, printed, verdict = {}, "", ""
        for step in STEPS:
            if step["name"] == "Comment" and verdict == "error":
                continue
            environment = {name: self._value(value, given, verdict) for name, value in step["env"].items()}
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.root, capture_output=True, text=True, check=False,
                env={**self._own(temp), **environment},
            )  # fmt: skip
            codes[step["name"]] = done.returncode
            printed += done.stdout + done.stderr
            if step["name"] == "Review" and (temp / "output").exists():
                verdict = (temp / "output").read_text().strip().removeprefix("verdict=")
            if done.returncode:
                break
        return codes, verdict, printed

    def _own(self, temp: Path) -> dict[str, str]:
        """What every step of a runner has."""
        return {
            "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
            "HOME": str(self.root), "RUNNER_TEMP": str(temp), "GITHUB_ACTION_PATH": str(FOLDER),
            "GITHUB_OUTPUT": str(temp / "output"), "GITHUB_STEP_SUMMARY": str(temp / "summary"),
        }  # fmt: skip

    @staticmethod
    def _value(value: str, given: dict[str, str], verdict: str) -> str:
        text = _OUTPUT.sub(verdict, _INPUT.sub(lambda name: given[name[1]], value))
        own = {"${{ github.repository }}": "octo/app", "${{ github.event.pull_request.number }}": "12"}
        return own.get(text, text)

    def methods(self) -> list[str]:
        """The methods of the calls so far."""
        calls = [json.loads(line) for line in self._calls.read_text().splitlines()]
        return [words[words.index("--method") + 1] if "--method" in words else "GET" for words in calls]

    def comments(self) -> list[str]:
        """The bodies of all comments."""
        return [one["body"] for one in json.loads(self._store.read_text())]

    def quotas(self, name: str, quotas: Quotas) -> str:
        """A file of quotas in the repository."""
        return str(quota_file(self.root, name, quotas))


@pytest.fixture
def workflow(tmp_path: Path) -> Workflow:
    return Workflow(tmp_path)


CUT: Quotas = {**BASE, Entity("bob"): {PRODUCE: 80_000.0}}
HARM: Quotas = {**BASE, Entity("bob"): {PRODUCE: 1_000.0}}
ALL = {"Install": 0, "Review": 0, "Comment": 0, "Verdict": 0}


def test_the_first_push_writes_a_comment_and_the_next_ones_update_it(workflow: Workflow) -> None:
    base = workflow.quotas("base.yaml", BASE)
    codes, verdict, printed = workflow.run(base=base, head=workflow.quotas("head.yaml", CUT))
    assert (codes, verdict) == (ALL, "person")
    assert "::warning::a person must decide" in printed
    assert workflow.methods() == ["GET", "POST"]
    assert workflow.comments()[1].startswith(
        "<!-- kquota review -->\n\n### Quota change: a person must decide\n"
    )

    codes, verdict, _ = workflow.run(base=base, head=workflow.quotas("head.yaml", HARM))
    assert (codes, verdict) == ({**ALL, "Verdict": 1}, "harm")
    assert workflow.methods()[2:] == ["GET", "PATCH"]
    assert "### Quota change: harm above the budget" in workflow.comments()[1]

    codes, verdict, _ = workflow.run(base=base, head=workflow.quotas("head.yaml", BASE))
    assert (codes, verdict) == (ALL, "harmless")
    assert workflow.methods()[4:] == ["GET", "PATCH"]
    said = "<!-- kquota review -->\n\nThis pull request no longer changes a quota.\n"
    assert workflow.comments() == [OTHERS["body"], said], "the comment of another login stays as it is"


def test_a_pull_request_without_a_change_gets_no_comment(workflow: Workflow) -> None:
    base = workflow.quotas("base.yaml", BASE)
    assert workflow.run(base=base, head=base)[:2] == (ALL, "harmless")
    assert workflow.methods() == ["GET"]


def test_a_file_that_is_not_there_yet_has_no_quotas(workflow: Workflow) -> None:
    # Zed sends nothing: its first limit has no traffic that shows the effect.
    head = workflow.quotas("head.yaml", {Entity("zed"): {PRODUCE: 50_000.0}})
    codes, verdict, printed = workflow.run(base=str(workflow.root / "none.yaml"), head=head)
    assert (codes, verdict) == (ALL, "person"), printed


def test_a_file_that_cannot_be_read_fails_the_check_and_writes_no_comment(workflow: Workflow) -> None:
    head = workflow.root / "head.yaml"
    head.write_text("- {user: bob, type: producer_byte_rate, value: much}\n")
    codes, verdict, printed = workflow.run(base=workflow.quotas("base.yaml", BASE), head=str(head))
    assert (codes, verdict) == ({"Install": 0, "Review": 0, "Verdict": 1}, "error")
    assert "expected a whole number of bytes per second" in printed
    assert workflow.methods() == []


def test_a_check_can_fail_where_a_person_must_decide(workflow: Workflow) -> None:
    base, head = workflow.quotas("base.yaml", BASE), workflow.quotas("head.yaml", CUT)
    assert workflow.run(base=base, head=head, fail_on="person")[0]["Verdict"] == 1
    # 2.5 s of delay are above a budget of 1 s.
    assert workflow.run(base=base, head=head, budget="1s")[1] == "harm"


def test_without_the_right_to_write_the_verdict_still_counts(tmp_path: Path) -> None:
    workflow = Workflow(tmp_path, is_refused=True)
    base, head = workflow.quotas("base.yaml", BASE), workflow.quotas("head.yaml", HARM)
    codes, verdict, printed = workflow.run(base=base, head=head)
    assert (codes, verdict) == ({**ALL, "Verdict": 1}, "harm")
    assert "::warning::the comment was not written" in printed
    assert "### Quota change: harm above the budget" in (tmp_path / "temp" / "summary").read_text()


def test_an_input_is_never_part_of_a_script(workflow: Workflow) -> None:
    mark = workflow.root / "mark"
    evil = f"$(touch {mark})`touch {mark}`; touch {mark} #"
    codes, _, _ = workflow.run(base=evil, head=evil, since=evil, budget=evil, tables=evil)
    assert not mark.exists()
    assert codes["Verdict"] == 1
    for step in STEPS:
        assert "${{" not in step["run"]
        assert set(step) <= {"name", "id", "if", "shell", "env", "run"}


def test_each_input_of_the_action_is_used_and_each_used_one_is_there() -> None:
    text = (FOLDER / "action.yml").read_text(encoding="utf-8")
    assert {*_INPUT.findall(text)} == {*ACTION["inputs"]}


def test_the_example_of_a_workflow_uses_inputs_of_the_action_and_no_value_in_a_script() -> None:
    workflow = yaml.safe_load((FOLDER / "workflow.example.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["review"]["steps"]
    [used] = [step["with"] for step in steps if step.get("uses", "").endswith("/kquota-review")]
    assert {*used} <= {*ACTION["inputs"]}
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert all("${{" not in step.get("run", "") for step in steps)
    # `on` is a Boolean of YAML 1.1.
    assert {*workflow[True]} == {"pull_request"}
