"""The inputs of a decision: requests from `usage`, rules, windows and gaps; lines from the topic or `requests`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from kquota_spark.config.governor import make_governor, mutation_config, rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.evidence.lines import LINE_NAMES, POSITION, Charge, Line, charges
from kquota_spark.evidence.log_topic import LeftOut, Position, lines_of_topic
from kquota_spark.evidence.rebuilding import Inputs, governed_rows
from kquota_spark.kafka.log_messages import UnreadError
from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_callback import LeaderBook
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.quotas.rules import RuleBook
from kquota_spark.model.replay.decision import remembers_ms
from kquota_spark.pipeline.bucket_judge import Configs, warm_start
from kquota_spark.pipeline.charges import CLIENT_KEYS
from kquota_spark.pipeline.known import BrokerWindows, Known, ReportedWindows, gaps_by_broker
from kquota_spark.pipeline.packed_points import points_of
from kquota_spark.pipeline.sent import Manager
from kquota_spark.quotas.stored import stored_rules
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.schema.tables import LEFT_OUT, REQUESTS, USAGE
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.reading import Tables, utc_text
from kquota_spark.store.storage import delta_table

MOST_REQUESTS = 100_000
"""Maximum number of requests before the second that are replayed, so that one row takes seconds at most."""
_REACH_MS = 86_400_000
"""Time before the second that is searched for a pause of the bucket, ms."""
_DAY_MS = 86_400_000
_TOKENS = "tokens/"
_SECONDS = f"""
select epoch_ms(usage.second), sum(requests)::bigint from usage
where cluster_id = ? and broker_id = ? and quota_type = ? and {FROM_LOG} and {{client}}
  and usage.second >= make_timestamptz(?::bigint) and usage.second <= make_timestamptz(?::bigint)
group by 1 order by 1
"""  # noqa: S608 - names of ours
_IS_OLDER = f"""
select count(*) > 0 from (
  select 1 from usage where cluster_id = ? and {FROM_LOG} and usage.second < make_timestamptz(?::bigint) limit 1)
"""  # noqa: S608 - names of ours
_RINGS = f"""
select model_variant, epoch_ms(min(decisions.second)), epoch_ms(max(decisions.second)) from decisions
where cluster_id = ? and broker_id = ? and quota_type = ? and {FROM_LOG} and model_variant is not null
  and decisions.second >= make_timestamptz(?::bigint) and decisions.second <= make_timestamptz(?::bigint)
group by 1 order by 2
"""  # noqa: S608 - names of ours
_GAPS = """
select broker_id, epoch_ms(from_time) as from_time, epoch_ms(to_time) as to_time, reason from log_gaps
where cluster_id = ?
"""
_LEFT_OUT_ROWS = f"""
select topic, partition, first_offset, kafka_offset, broker_id, quota_type, record_time_ms // 1000, lines,
       charged_bytes
from requests
where cluster_id = ? and kind = '{LEFT_OUT}' and record_time_ms >= ? and record_time_ms < ?
  and (broker_id = ? or ?::integer is null) and (quota_type = ? or ?::varchar is null)
order by all
"""  # noqa: S608 - a name of ours
_OWN = f"""
select topic, partition, kafka_offset from requests
where cluster_id = ? and kind <> '{LEFT_OUT}' and topic = ? and partition = ? and kafka_offset between ? and ?
"""  # noqa: S608 - a name of ours
_LEFT_OUT = f"""
select coalesce(sum(lines), 0)::bigint from requests
where cluster_id = ? and kind = '{LEFT_OUT}' and record_time_ms >= ? and record_time_ms < ?
"""  # noqa: S608 - a name of ours


class LinesFrom(Enum):
    """Where the lines of a decision are read."""

    AUTO = "auto"
    """From the log topic if the settings name it and it still has them, else from the table."""
    TOPIC = "topic"
    TABLE = "table"


class Case(NamedTuple):
    """A decision, its inputs, and where they come from.

    Attributes:
        row: the decision in the table, with the columns of `rebuilding.NAMES`.
        inputs: what it depends on.
        known: quotas, windows and gaps.
        from_ms: start of the replay, epoch ms.
        is_warm: whether the ring was empty there; otherwise its samples may have opened at other times.
        lines: the log lines of the inputs, in order of record time and offset.
        is_from_topic: whether the lines were read from the log topic, and equal the table's rows.
        why_not_topic: why they were not; empty where the settings name no Kafka, or the table was asked for.
    """

    row: Mapping[str, Any]
    inputs: Inputs
    known: Known
    from_ms: int
    is_warm: bool
    lines: list[Line]
    is_from_topic: bool = False
    why_not_topic: str = ""


def case_of(
    tables: Tables,
    settings: Settings,
    row: Mapping[str, Any],
    *,
    lines_from: LinesFrom = LinesFrom.AUTO,
) -> Case:
    """The inputs of a decision.

    Args:
        tables: opened for queries; `decisions` is open.
        settings: where the tables are.
        row: the decision, with the columns of `rebuilding.NAMES`.
        lines_from: where to read the log lines.

    Raises:
        UserError: the tables do not have the inputs any more, or never had them; or a line of the topic differs from
            its row.
    """
    _require_replay(settings, row)
    settings = settings.changed(cluster_id=row["cluster_id"])
    manager = Manager(row["cluster_id"], row["broker_id"], QuotaType(row["quota_type"]))
    bucket = (row["bucket_user"], row["bucket_client_id"], row["bucket_tags"])
    tables.open("usage")
    windows, configs = _windows(tables, settings, row, manager)
    horizon_ms = remembers_ms(manager.quota_type, configs.of(manager.quota_type, None))
    from_ms, is_warm = _start(tables, manager, row, horizon_ms)
    known = _known(tables, settings, windows)
    usage = _read(settings, USAGE.name, _USAGE_NAMES, _of_usage(manager, row, from_ms))
    rows = governed_rows(_one_batch(usage), known, manager, bucket)
    rows = [sent for sent in rows if from_ms <= sent.second_ms <= row["second_ms"]]
    inputs = Inputs(manager, bucket, row["second_ms"], rows, configs)
    if not any(sent.second_ms == row["second_ms"] for sent in rows):
        raise UserError(
            f"table usage has no request of this decision at {utc_text(row['second_ms'])}: maintain.retention.usage "
            "is how long it keeps them"
        )
    case = Case(row, inputs, known, from_ms, is_warm, [])
    return _with_lines(tables, settings, case, lines_from)


def _require_replay(settings: Settings, row: Mapping[str, Any]) -> None:
    if row["source"] != "log":
        raise UserError("this decision is from JMX: a broker's own rate, for which there are no log lines")
    if settings.quotas.callback or row["bucket_tags"] is not None:
        raise UserError(
            "a quota callback decides on this cluster: its limits cannot be rebuilt without the callback's own code"
        )
    if row["late"] and not row["requests"]:
        raise UserError(
            "this row counts requests that came late and were not judged: kquota restate recomputes the period"
        )


_USAGE_NAMES = ("cluster_id", *CLIENT_KEYS, "second", "points")


def _client_condition(row: Mapping[str, Any]) -> tuple[str, list[str]]:
    """SQL and values for the clients that can be in the bucket, by its tags."""
    found = {'"user"': row["bucket_user"]} if row["bucket_user"] else {}
    if row["bucket_client_id"] or not row["bucket_user"]:
        found["client_id"] = row["bucket_client_id"]
    return " and ".join(f"{name} = ?" for name in found), list(found.values())


def _start(tables: Tables, manager: Manager, row: Mapping[str, Any], horizon_ms: int) -> tuple[int, bool]:
    """Where the replay begins (epoch ms), and whether the ring was empty there."""
    second_ms = row["second_ms"]
    warm_from_ms = second_ms - max(_REACH_MS, 2 * horizon_ms)
    condition, values = _client_condition(row)
    place = [manager.cluster_id, manager.broker_id, manager.quota_type.value, *values]
    sql = _SECONDS.format(client=condition)
    found = tables.query(sql, [*place, warm_from_ms * 1_000, second_ms * 1_000]).rows
    [[is_older]] = tables.query(_IS_OLDER, [manager.cluster_id, warm_from_ms * 1_000]).rows
    before = [time_ms for time_ms, _ in found if time_ms < second_ms]
    start_ms, is_warm = warm_start(
        before, second_ms, horizon_ms, warm_from_ms, is_from_beginning=not is_older
    )
    requests = 0
    for time_ms, count in reversed(found):
        requests += count
        if requests > MOST_REQUESTS and time_ms < second_ms:
            # The second after this one is the first that still fits.
            return (start_ms, is_warm) if start_ms > time_ms else (time_ms + 1_000, False)
    return start_ms, is_warm


def _windows(
    tables: Tables, settings: Settings, row: Mapping[str, Any], manager: Manager
) -> tuple[BrokerWindows, Configs]:
    """The windows with which the decisions of this broker and type were made, and those of this decision."""
    of_mutations, variant = mutation_config(settings), row["model_variant"]
    if variant.startswith(_TOKENS):
        num_samples, _, window_ms = variant.removeprefix(_TOKENS).removesuffix("ms").partition("x")
        sampled = rate_config(settings)
        return BrokerWindows(sampled), Configs(sampled, RateConfig(int(num_samples), int(window_ms)))
    own = RateConfig.parse(variant)
    place = [manager.cluster_id, manager.broker_id, manager.quota_type.value]
    during = [(row["second_ms"] - _REACH_MS) * 1_000, row["second_ms"] * 1_000]
    reported = []
    for name, first_ms, last_ms in tables.query(_RINGS, [*place, *during]).rows:
        config = RateConfig.parse(name)
        ring = config.variant.value, config.num_samples, config.window_ms // 1_000
        reported.append(ReportedWindows(first_ms, last_ms + 1_000, *ring))
    return BrokerWindows(own, {manager.broker_id: reported}), Configs(own, of_mutations)


def _known(tables: Tables, settings: Settings, windows: BrokerWindows) -> Known:
    rules = stored_rules(settings)
    governor = make_governor(settings, RuleBook(rules.periods), LeaderBook(()))
    tables.open_if_there("log_gaps")
    gaps = gaps_by_broker(tables.query(_GAPS, [settings.cluster_id]).dicts())
    return Known(governor, rules.known_through_ms, windows, gaps)


def _read(settings: Settings, name: str, columns: tuple[str, ...], chosen: ds.Expression) -> pa.Table:
    with delta_errors(f"table {name} under {settings.tables} cannot be read"):
        return delta_table(settings, name).dataset().to_table(columns=list(columns), filter=chosen)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1_000, UTC)


def _of_clients(row: Mapping[str, Any], from_ms: int) -> ds.Expression:
    """Rows of this cluster, of the clients that can be in the bucket, on the dates of the replay."""
    chosen: ds.Expression = (
        (ds.field("cluster_id") == row["cluster_id"])
        & (ds.field("event_date") >= _time(from_ms).date())
        & (ds.field("event_date") <= _time(row["second_ms"]).date())
    )
    if row["bucket_user"]:
        chosen &= ds.field("user") == row["bucket_user"]
    if row["bucket_client_id"] or not row["bucket_user"]:
        chosen &= ds.field("client_id") == row["bucket_client_id"]
    found: ds.Expression = chosen
    return found


def _of_usage(manager: Manager, row: Mapping[str, Any], from_ms: int) -> ds.Expression:
    chosen: ds.Expression = (
        _of_clients(row, from_ms)
        & (ds.field("broker_id") == manager.broker_id)
        & (ds.field("quota_type") == manager.quota_type.value)
        & (ds.field("source") == "log")
        & (ds.field("second") >= _time(from_ms))
        & (ds.field("second") <= _time(row["second_ms"]))
    )
    return chosen


def _with_lines(tables: Tables, settings: Settings, case: Case, source: LinesFrom) -> Case:
    """The case with the lines of its inputs, each with what it charges.

    Raises:
        UserError: some of them are nowhere any more, or differ between the topic and the table.
    """
    lines, why, is_from_topic = _rows(settings, case), "", False
    if source is LinesFrom.TOPIC or (source is LinesFrom.AUTO and _names_kafka(settings)):
        try:
            lines, is_from_topic = _of_topic(tables, settings, case, lines), True
        except UnreadError as error:
            why = str(error)
            if source is LinesFrom.TOPIC:
                raise UserError(f"--lines topic: {why}") from error
    try:
        charged = _charged(case, lines)
    except _MissingError as error:
        raise UserError(_why_missing(tables, settings, case, error.count, why)) from error
    return case._replace(lines=charged, is_from_topic=is_from_topic, why_not_topic=why)


class _MissingError(Exception):
    """Some inputs have no line."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def _names_kafka(settings: Settings) -> bool:
    """Whether the settings name a Kafka; at a default address another cluster might answer."""
    return settings.kafka.has_log and "bootstrap_servers" in settings.kafka.given


def _charged(case: Case, found: Sequence[Line]) -> list[Line]:
    """Those of the lines that the inputs come from, in order.

    Raises:
        _MissingError: an input has no line.
    """
    manager = case.inputs.manager
    lines = sorted(found, key=lambda line: (line["record_time_ms"], *(line[name] for name in POSITION)))
    wanted = {
        (sent.user, sent.client_id, point) for sent in case.inputs.rows for point in points_of(sent.points)
    }
    charged = [each for each in charges(lines, manager.broker_id, manager.quota_type) if each.key in wanted]
    if missing := len(wanted) - len({each.key for each in charged}):
        raise _MissingError(missing)
    return with_charges(lines, charged)


def _rows(settings: Settings, case: Case) -> list[Line]:
    """The rows of `requests` that can be lines of the inputs."""
    row, manager, end_ms = case.row, case.inputs.manager, case.row["second_ms"] + 1_000
    # A line is filed under the day of its reading if that is earlier.
    chosen = (
        _of_clients(row, case.from_ms - _DAY_MS)
        & ds.field("kind").isin(["request", "unreadable"])
        & (ds.field("record_time_ms") >= case.from_ms)
        & (ds.field("record_time_ms") < end_ms)
    )
    if manager.quota_type in BANDWIDTH:
        chosen &= ds.field("quota_type") == manager.quota_type.value
    if manager.broker_id != CONTROLLER_ID:
        chosen &= ds.field("broker_id") == manager.broker_id
    return [*_read(settings, REQUESTS.name, LINE_NAMES, chosen).to_pylist()]


def _of_topic(tables: Tables, settings: Settings, case: Case, rows: Sequence[Line]) -> list[Line]:
    """The lines of the inputs from the log topic: those of rows, and those that rows with sums replace.

    Raises:
        UnreadError: the topic does not have them any more, or cannot be read.
    """
    manager, row = case.inputs.manager, case.row
    tables.open_if_there("requests")
    broker = None if manager.broker_id == CONTROLLER_ID else manager.broker_id
    bandwidth = manager.quota_type.value if manager.quota_type in BANDWIDTH else None
    during = [settings.cluster_id, case.from_ms, row["second_ms"] + 1_000]
    found = tables.query(_LEFT_OUT_ROWS, [*during, broker, broker, bandwidth, bandwidth]).rows
    left_out = list(map(LeftOut._make, found))
    own: set[Position] = set()
    for topic, partition in {each.place for each in left_out}:
        first, last = min(each.first_offset for each in left_out), max(each.kafka_offset for each in left_out)
        own.update(tables.query(_OWN, [settings.cluster_id, topic, partition, first, last]).rows)
    user, client_id = row["bucket_user"], row["bucket_client_id"]
    return [
        line
        for line in lines_of_topic(settings, rows, left_out, own)
        if user in ("", line["user"]) and (line["client_id"] == client_id or (user and not client_id))
    ]


def with_charges(lines: Sequence[Line], charged: Sequence[Charge]) -> list[Line]:
    """The lines that charge something, each with the charged amounts under `amounts`."""
    amounts: dict[int, list[int]] = {}
    for each in charged:
        amounts.setdefault(each.place, []).append(each.point.amount)
    return [{**lines[place], "amounts": amounts[place]} for place in sorted(amounts)]


def _why_missing(tables: Tables, settings: Settings, case: Case, missing: int, why: str) -> str:
    tables.open_if_there("requests")
    period = [settings.cluster_id, case.from_ms, case.row["second_ms"] + 1_000]
    [[left_out]] = tables.query(_LEFT_OUT, period).rows
    begin = f"{missing:,} requests since {utc_text(case.from_ms)} have no row in table requests"
    if not left_out:
        return (
            f"{begin}: maintain.retention.requests is how long it keeps them, and older lines cannot be shown"
        )
    reason = why or "the settings name no kafka.bootstrap_servers"
    return f"{begin}, because of tables.requests, and the log topic does not have them: {reason}"
