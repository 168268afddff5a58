"""`make demo`: a real Kafka, real clients over their quotas, and the audit of them, side by side.

ZooKeeper and Kafka, the shipper and the audit are real processes, started by the commands of a user. Variables of the
environment change the run:

- DEMO_SECONDS is the length of the load.
- SOURCE=jmx: the audit reads the broker's Jolokia agent instead of a request log.
- KIND=kraft: a KRaft node; its quotas are watched through the Admin API.
- KAFKA is another version. Brokers of 3.7.2 measure rates the older way. 4.3.0 is a KRaft node, and a share consumer
  joins the load.
- ENFORCE=1: a penalty is applied in mid-run, and ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.demo import enforcement as demo_enforcement
from kquota_spark.embedded.demo import plan as demo_plan
from kquota_spark.embedded.demo.enforcement import shown
from kquota_spark.embedded.demo.load import ClientPlan, run_load
from kquota_spark.embedded.demo.summary import LiveTable, is_all_judged, next_steps, summarise
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.embedded.setup.jars import CONF, IVY_XML, ensure_jars
from kquota_spark.embedded.setup.java import find_java
from kquota_spark.embedded.setup.spark import prepare_spark
from kquota_spark.errors import UserError
from kquota_spark.process.clock import time_of_day
from kquota_spark.quotas.watch import Watcher

DIRECTORY = Path(".kquota/demo")
_JUDGED_WITHIN_S = 300.0
_STOP_S = 60.0
# The demo takes minutes, with little data, beside a broker on the same cores. The optimising compiler then costs more
# than it saves: with only the first tier, the first decision comes in half the time. The same holds for generated code,
# which has to be compiled first.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xss4m"
_SUBMIT = (
    f"--driver-memory 2g --conf 'spark.driver.extraJavaOptions={_JAVA}' "
    "--conf spark.sql.codegen.wholeStage=false pyspark-shell"
)
_KAFKAS = {
    "3.9.1": IVY_XML,
    "3.7.2": CONF / "ivy-kafka-3.7.2.xml",
    "4.3.0": CONF / "ivy-kafka-4.3.0.xml",
}
"""Declarations of the jars by version, the default first."""
NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
FEEDERS = {"log": "ship", "jmx": "collect jmx"}
"""The `kquota` command that feeds the audit, by SOURCE."""
_CONFIG = """\
# Written by the demo; the keys are those of conf/kquota.yaml.
cluster_id: demo
tables: {directory}/tables
owners: {directory}/owners.yaml
checkpoints: {directory}/checkpoints
kafka:
  bootstrap_servers: {bootstrap}
  topic: "{topic}"
  jmx_topic: "{jmx_topic}"
  options: {login}
quotas: {{{quotas}}}
stream: {{trigger: 1 s, allowed_lateness: 5 s}}
ship:
  files: [{files}]
  state_dir: {directory}/ship
  options: {login}
collect: {{jmx: {{brokers: {agents}, interval: 2 s, options: {login}}}}}
enforcement: {{policy_file: {directory}/policy.yaml, allow_open_nodes: true, decision_topic: "{decision_topic}"}}
"""


class Chosen(NamedTuple):
    """The choices of the environment for the demo."""

    seconds: float
    source: str
    kafka: str
    is_kraft: bool
    is_enforced: bool


def main(environment: Mapping[str, str] = os.environ, options: Mapping[str, str] = NO_OPTIONS) -> int:
    """Run the demo with these variables; return the exit code.

    `options` maps variables to options of `kquota demo`, which messages name instead.
    """
    # The SIGTERM of `make` must reach the `finally` blocks that stop brokers and Spark.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        _run(_chosen(environment, options))
    except UserError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
        return 130
    return 0


def _chosen(environment: Mapping[str, str], options: Mapping[str, str] = NO_OPTIONS) -> Chosen:
    def named(variable: str) -> str:
        return options.get(variable, "ENFORCE=1" if variable == "ENFORCE" else variable)

    def one_of(variable: str, *values: str) -> str:
        value = environment.get(variable, values[0])
        if value not in values:
            raise UserError(f"{named(variable)}: {value!r}, expected {' or '.join(values)}")
        return value

    try:
        seconds = float(environment.get("DEMO_SECONDS", "150"))
        if not 10 <= seconds <= 3600:
            raise ValueError
    except ValueError:
        raise UserError(f"{named('DEMO_SECONDS')}: expected a number of seconds from 10 to 3600") from None
    source = one_of("SOURCE", *FEEDERS)
    kafka = one_of("KAFKA", *_KAFKAS)
    # From 4.0 on Kafka has no ZooKeeper.
    kinds = ("zookeeper", "kraft") if kafka.startswith("3.") else ("kraft",)
    is_kraft = one_of("KIND", *kinds) == "kraft"
    is_enforced = environment.get("ENFORCE", "") not in ("", "0")
    if is_enforced:
        demo_enforcement.check_enforced(seconds, source, named)
    return Chosen(seconds, source, kafka, is_kraft, is_enforced)


def _run(chosen: Chosen) -> None:
    seconds, source = chosen.seconds, chosen.source
    has_share_groups = chosen.kafka.startswith("4.")
    find_java()  # first: if there is no Java, the files of the last run stay
    prepare_spark("demo")
    jars = ensure_jars(_KAFKAS[chosen.kafka])
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    _log_step(f"starting {'a KRaft node of' if chosen.is_kraft else 'ZooKeeper and'} Kafka {chosen.kafka}")
    brokers = BrokerSettings(users=demo_plan.USERS, jolokia=source == "jmx", kraft=chosen.is_kraft)
    with embedded_cluster(DIRECTORY / "cluster", settings=brokers, jars=jars) as cluster:
        create_topics(cluster, demo_plan.TOPICS, config={"message.timestamp.type": "LogAppendTime"})
        demo_plan.set_quotas(cluster)
        config = _write_config(cluster, source)
        settings = load_settings(config)
        demo_enforcement.write_policy(DIRECTORY / "policy.yaml", seconds, is_enforced=chosen.is_enforced)
        act = demo_enforcement.Act(cluster, config, seconds) if chosen.is_enforced else None
        if chosen.is_kraft:
            # Polls see no history. So the watcher starts before the traffic, as the documentation advises operators.
            watcher = Watcher(settings)
            watcher.start()
            watcher.stop()
        feeder = FEEDERS[source]
        _log_step(f"quotas are set on six levels; starting kquota audit (logs in {DIRECTORY})")
        with _process(_kquota("audit", config), "audit.log", {"PYSPARK_SUBMIT_ARGS": _SUBMIT}) as audit:
            _log_step("writing what the consumers will read")
            run_load(cluster, demo_plan.history())
            _log_step(f"starting kquota {feeder} and the clients")
            with _process(_kquota(feeder, config), f"{feeder.partition(' ')[0]}.log") as feeding:
                plans = demo_plan.clients(seconds, has_share_groups=has_share_groups)
                _load_and_show(cluster, settings, plans, [audit, feeding], act)
                if act is not None:
                    act.finish()
            if source == "log":
                _log_step("the load has ended; shipping the last lines, then the audit works through them")
                with _process([*_kquota("ship", config), "--once", "--end"], "ship-end.log") as last:
                    _require_success(last, "ship-end.log")
            else:
                _log_step("the load has ended; the audit works through the last samples")
            _wait_until_judged(settings, audit)
            audit.terminate()
            _require_success(audit, "audit.log")
        plan = shown("enforce", "plan", config=config)
    report = DIRECTORY / "report.html"
    print(shown("throttled", config=config))
    print(summarise(settings, seconds, DIRECTORY / "summary.json"))
    print(plan, *([shown("shadow", config=config)] if source == "log" else ()), sep="\n")
    print(shown("report", "--period", "last:1h", "--to", str(report), config=config))
    print(next_steps(config, report))


def _log_step(text: str) -> None:
    print(f"[{time_of_day()}] {text}", flush=True)


def _write_config(cluster: Cluster, source: str) -> Path:
    login = cluster.client_settings(demo_plan.AUDITOR)
    bootstrap = login.pop("bootstrap.servers")
    config = DIRECTORY / "kquota.yaml"
    config.touch(mode=0o600)
    (DIRECTORY / "owners.yaml").write_text(demo_plan.OWNERS, encoding="utf-8")
    if source == "log":  # JMX shows rates, which cannot be judged again under other quotas
        (DIRECTORY / "shadow.yaml").write_text(demo_plan.shadow_file(), encoding="utf-8")
    text = _CONFIG.format(
        directory=DIRECTORY,
        bootstrap=bootstrap,
        topic=demo_plan.LOG_TOPIC if source == "log" else "",
        jmx_topic=demo_plan.JMX_TOPIC if source == "jmx" else "",
        agents=json.dumps(
            {broker.id: broker.jolokia_url for broker in cluster.brokers if broker.jolokia_url}
        ),
        quotas=(
            f'zookeeper_connect: "{cluster.zookeeper_connect}"'
            if cluster.has_zookeeper
            else "source: admin, poll_interval: 1 s"
        )
        + (
            f", shadow: {DIRECTORY}/shadow.yaml, shadow_name: {demo_plan.SHADOW_NAME}"
            if source == "log"
            else ""
        ),
        decision_topic="" if cluster.has_zookeeper else "kquota.decisions",
        files=", ".join(json.dumps(f"{broker.id}={broker.request_log}") for broker in cluster.brokers),
        login=json.dumps(login),
    )
    config.write_text(text, encoding="utf-8")
    return config


def _kquota(command: str, config: Path) -> list[str]:
    return [sys.executable, "-m", "kquota_spark.cli.main", *command.split(), "--config", str(config)]


@contextmanager
def _process(
    command: list[str], log: str, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is stopped with SIGTERM at the end of the block, as an operator would do."""
    environment = {**os.environ, **(variables or {})}
    with (DIRECTORY / log).open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _load_and_show(
    cluster: Cluster,
    settings: Settings,
    plans: Sequence[ClientPlan],
    processes: list[subprocess.Popen[bytes]],
    act: demo_enforcement.Act | None,
) -> None:
    """Run the clients, change a quota halfway, and show the audit's live table until they end."""
    seconds = max(plan.stop_s for plan in plans)
    stop = threading.Event()
    load = threading.Thread(target=run_load, args=(cluster, plans, stop), daemon=True)
    load.start()
    started_s = time.monotonic()
    live = LiveTable(settings)
    is_changed = False
    running = ExitStack()
    if act is not None:
        running.enter_context(act.offender())
    try:
        while load.is_alive():
            load.join(1.0)
            passed_s = time.monotonic() - started_s
            if not is_changed and passed_s > seconds / 2:
                live.note(f"changed in mid-run: {demo_plan.change_quota(cluster)}")
                is_changed = True
            for line in act.step(passed_s) if act else ():
                live.note(line)
            for process in processes:
                _require_running(process)
            live.show(passed_s, seconds)
    finally:
        stop.set()
        running.close()
        load.join()


def _require_running(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        raise UserError(
            f"{_name(process)} ended with {process.returncode} in mid-run: see its log in {DIRECTORY}"
        )


def _require_success(process: subprocess.Popen[bytes], log: str) -> None:
    if process.wait(_JUDGED_WITHIN_S) != 0:
        raise UserError(f"{_name(process)} ended with {process.returncode}: see {DIRECTORY / log}")


def _name(process: subprocess.Popen[bytes]) -> str:
    return next(
        f"kquota {command}"
        for command in ("audit", *FEEDERS.values())
        if set(command.split()) <= set(process.args)  # type: ignore[arg-type]
    )


def _wait_until_judged(settings: Settings, audit: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _JUDGED_WITHIN_S
    while not is_all_judged(settings):
        _require_running(audit)
        if time.monotonic() > deadline:
            raise UserError(
                f"the audit has not judged everything after {_JUDGED_WITHIN_S:.0f} s: "
                f"kquota doctor --config {DIRECTORY}/kquota.yaml shows where they are"
            )
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
