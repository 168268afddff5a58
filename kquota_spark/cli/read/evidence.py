"""`kquota evidence`: one decision rebuilt from its log lines, as a chain from the line to the throttle.

It explains the tenant's request that was throttled longest in a second. The bundle is a file for the tenant: anyone can
verify it without the tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kquota_spark.cli.answers import DAY_MS, newest_decision_ms
from kquota_spark.cli.exit_codes import DONE, REFUSED
from kquota_spark.cli.filters import Filter, bucket_conditions
from kquota_spark.cli.options import TIME_FORMS, Since, add_bucket_options, add_form_option, time_argument
from kquota_spark.cli.own_options import option
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.cli.read.evidence_page import Notes, chain_value, print_chain, print_verified
from kquota_spark.cli.text.render import print_answer
from kquota_spark.config.owners_file import owners_of
from kquota_spark.errors import UserError
from kquota_spark.model.owners import UNOWNED_NAME, Owners
from kquota_spark.schema.figures import figure_of
from kquota_spark.schema.harm import HAS_VERDICT
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.reading import utc_text

COMMANDS = {
    "evidence": (
        "answers",
        "one decision rebuilt from its log lines: line, bytes, sample, rate, limit, throttle",
        "kquota evidence --user alice --at 2026-11-21T20:05:10Z --bundle alice.zip",
        "kquota evidence --verify alice.zip",
    ),
}
CODES = {
    "evidence": {
        REFUSED: "the rebuilt decision differs from the table, or the bundle is false",
    }
}

_CHOSEN = """
select {names}, epoch_ms(decisions.second) as second_ms from decisions{where}
order by decisions.second desc, greatest(coalesce(throttle_ms, 0), coalesce(observed_throttle_ms, 0)) desc,
         quota_used_percent desc nulls last, cluster_id, broker_id, quota_type, bucket_user, bucket_client_id
limit 20
"""
_IS_THROTTLED = "(coalesce(throttled_requests, 0) > 0 or coalesce(observed_throttled_requests, 0) > 0)"


@dataclass(frozen=True, slots=True)
class _Own:
    """The options that no other command has."""

    at: Since | None = option(
        "--at", f"the second: {TIME_FORMS} (default the newest throttled one of the last day)",
        type=time_argument, metavar="T",
    )  # fmt: skip
    bundle: Path | None = option(
        "--bundle",
        "also write a ZIP file for the tenant; names of others are masked",
        type=Path,
        metavar="FILE",
    )
    lines: str = option(
        "--lines",
        "where to read the log lines: auto takes the topic if it still has them, else the table (default auto)",
        default="auto",
        choices=("auto", "topic", "table"),
    )
    verify: Path | None = option(
        "--verify", "instead verify such a file, without tables and settings", type=Path, metavar="FILE"
    )


def _find(asked: Asked) -> Found:
    """The decision, its chain, and whether it was rebuilt as the table has it.

    Raises:
        UserError: there is no such decision, or the tables do not have its inputs.
    """
    from kquota_spark.evidence.bundle import bundle_of, lines_note, prove
    from kquota_spark.evidence.chain import chain_of
    from kquota_spark.evidence.lines import charges
    from kquota_spark.evidence.stored import LinesFrom, case_of
    from kquota_spark.process.replaced_file import replace_file

    row, others = _decision(asked)
    case = case_of(asked.tables, asked.settings, row, lines_from=LinesFrom(asked.own.lines))
    owners = owners_of(asked.settings)
    is_own = _is_own(asked.wanted, owners, row["second_ms"])
    if not any(is_own(line["user"], line["client_id"]) for line in case.lines):
        raise UserError("no request of this second has both names: give --user or --client-id alone")
    proof = prove(case, is_own)
    manager = case.inputs.manager
    charged = charges(case.lines, manager.broker_id, manager.quota_type)
    chain = chain_of(proof.rebuilt, case.lines, charged, proof.place)
    client = chain.line["user"], chain.line["client_id"]
    owner = None if owners is None else owners.of(*client, row["second_ms"]).name
    file: Path | None = asked.own.bundle
    if file is not None:
        replace_file(file, bundle_of(proof, is_own), advice="give another --bundle")
    shown = {
        "second": row["second_ms"],
        **{figure_of(DECISIONS, name): row[name] for name in row if name != "second_ms"},
    }
    if owner:
        shown["owner"] = owner
    note = lines_note(case)
    return Found(
        tuple(shown),
        [shown],
        page=lambda page: print_chain(page, proof, chain, Notes(owner, note, others, file)),
        times=frozenset(("second",)),
        envelope={
            "chain": chain_value(chain),
            "rebuilt": {"is_equal": proof.is_equal, "differing": proof.differing, "is_warm": case.is_warm},
            "lines": note,
            "lines_from": "topic" if case.is_from_topic else "table",
            "why_not_topic": case.why_not_topic or None,
            "bundle": None if file is None else str(file),
        },
        code=DONE if proof.is_equal else REFUSED,
    )


def _decision(asked: Asked) -> tuple[dict[str, Any], int]:
    """The decision that the options choose, and how many others they would choose in the same second.

    Raises:
        UserError: there is none.
    """
    from kquota_spark.evidence.rebuilding import NAMES

    at: Since | None = asked.own.at
    newest_ms = newest_decision_ms(asked.tables)
    where = bucket_conditions(asked.wanted)
    where.add(HAS_VERDICT)
    if at is None:
        where.add(_IS_THROTTLED)
        from_ms, to_ms = newest_ms - DAY_MS, newest_ms + 1
    else:
        from_ms = at.time_ms // 1_000 * 1_000
        to_ms = from_ms + 1_000
    asked.tables.open(DECISIONS.name, from_ms)
    where.add("decisions.second >= make_timestamptz(?::bigint)", from_ms * 1_000)
    where.add("decisions.second < make_timestamptz(?::bigint)", to_ms * 1_000)
    names = ", ".join(f'"{name}"' for name in NAMES if name != "second_ms")
    rows = asked.tables.query(_CHOSEN.format(names=names, where=where.sql), where.values).dicts()
    if not rows:
        raise UserError(_why_none(asked.wanted, at, newest_ms))
    row = {name: rows[0][name] for name in NAMES}
    return row, sum(other["second_ms"] == row["second_ms"] for other in rows) - 1


def _why_none(wanted: Filter, at: Since | None, newest_ms: int) -> str:
    of = f" matches {wanted.text}" if wanted.text else " is there"
    if at is None:
        return f"no throttled second{of} in the day before {utc_text(newest_ms)}: --at chooses another second"
    return (
        f"no decision{of} at {utc_text(at.time_ms)}: kquota decisions lists the seconds of a client, the newest is of "
        f"{utc_text(newest_ms)}"
    )


def _is_own(wanted: Filter, owners: Owners | None, second_ms: int) -> Callable[[str, str], bool]:
    """Whether a user and client id are the tenant's: the named ones, and those of the same owner."""

    def is_named(user: str, client_id: str) -> bool:
        return wanted.user in (None, user) and wanted.client in (None, client_id)

    if owners is None or (wanted.user is None and wanted.client is None):
        return is_named
    owner = owners.of(wanted.user or "", wanted.client or "", second_ms).name
    if owner == UNOWNED_NAME:
        return is_named
    return lambda user, client_id: (
        is_named(user, client_id) or owners.of(user, client_id, second_ms).name == owner
    )


def _run(options: argparse.Namespace) -> int:
    """Explain a decision, or verify a bundle."""
    if options.verify is None:
        return QUESTION.run(options)
    given = [
        name
        for name in ("user", "client_id", "broker", "type", "at", "bundle")
        if getattr(options, name) is not None
    ]
    if given:
        raise UserError(f"--verify: not with --{given[0].replace('_', '-')}, a bundle is about one decision")
    from kquota_spark.evidence.verification import verify

    found = verify(options.verify)
    if options.output == "table":
        print_verified(options.verify, found)
    else:
        false = found.false_link
        answer = {
            "file": str(options.verify),
            "is_true": false is None,
            "first_false_link": None if false is None else false.name,
            "problem": None if false is None else false.problem,
            "links": [link.name for link in found.links],
            "manifest": found.manifest,
        }
        print_answer("kquota evidence", answer, "json" if options.output == "csv" else options.output)
    return DONE if found.false_link is None else REFUSED


QUESTION = Question(
    command="evidence",
    table=DECISIONS,
    find=_find,
    options=add_bucket_options,
    declared=_Own,
    period=None,
    has_agreement=False,
    form=add_form_option,
)


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `evidence`."""
    QUESTION.add_to(subparsers)
    subparsers.choices["evidence"].set_defaults(run=_run)
