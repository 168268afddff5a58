"""`kquota ship` and `kquota collect jmx`: send request logs and brokers' own rates to the topics of the audit."""

from __future__ import annotations

import argparse
import sys

from kquota_spark.cli.options import add_config_option, settings_of
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.process.clock import now_ms
from kquota_spark.process.listeners import require_ports
from kquota_spark.process.notices import notices_of

COMMANDS = {
    "ship": (
        "programs",
        "ship request logs into Kafka",
        "kquota ship --file 1=/var/log/kafka/kafka-request.log",
    ),
    "collect": (
        "programs",
        "collect metrics of brokers into Kafka",
        "kquota collect jmx --config conf/kquota.yaml",
    ),
}

_notice = notices_of("collect")


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `ship` and `collect jmx`."""
    ship = subparsers.add_parser(
        "ship",
        description="Follows the request logs of brokers through rotation and sends each line to the Kafka"
        " topic that the audit reads. After a crash lines may be sent twice, never lost.",
    )
    add_config_option(ship)
    ship.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="ID=PATH",
        help="the log of broker ID; may be repeated; instead of ship.files",
    )
    ship.add_argument("--bootstrap-server", metavar="HOST:PORT", help="instead of kafka.bootstrap_servers")
    ship.add_argument("--topic", metavar="T", help="instead of kafka.topic")
    ship.add_argument("--once", action="store_true", help="ship what is there and stop")
    ship.add_argument(
        "--end", action="store_true", help="with --once: report to the audit that nothing more will come"
    )
    ship.set_defaults(run=run_ship, parser=ship)

    collect = subparsers.add_parser("collect", description=None)
    commands = collect.add_subparsers(required=True, metavar="WHAT")
    jmx = commands.add_parser(
        "jmx",
        help="poll the Jolokia agents or jmx_exporters of the brokers",
        description="Polls the Jolokia agent or jmx_exporter of each broker (collect.jmx.source and brokers) and sends"
        " what its quota sensors say to the topic kafka.jmx_topic, until stopped. A broker that is away is left out"
        " until it is back.",
    )
    add_config_option(jmx)
    jmx.set_defaults(run=run_collect_jmx)


def run_ship(options: argparse.Namespace) -> int:
    """Ship until stopped, or once."""
    from kquota_spark.process.graceful_stop import stop_event
    from kquota_spark.ship.selection import log_files
    from kquota_spark.ship.shipper import Shipper

    if options.end and not options.once:
        options.parser.error("--end works only with --once")
    files = log_files(options.file, "--file") if options.file else None
    stop = stop_event()
    with Shipper.from_settings(_settings(options), files) as shipper:
        counts = shipper.run_once(end=options.end, stop=stop) if options.once else shipper.run(stop)
    text = f"shipped {counts.lines} lines"
    if counts.excluded:
        text += f", left out {counts.excluded} of our own clients"
    if counts.cut:
        text += f", cut {counts.cut} long ones"
    if counts.half_line_bytes:
        text += f"; {counts.half_line_bytes} bytes without line feed wait for their rest"
    print(text, file=sys.stderr)
    return 0


def _settings(options: argparse.Namespace) -> Settings:
    settings = settings_of(options, "kafka", "ship")
    kafka = settings.kafka
    if options.bootstrap_server:
        require_ports(options.bootstrap_server, "--bootstrap-server")
        kafka = kafka.changed(bootstrap_servers=options.bootstrap_server)
    if options.topic:
        kafka = kafka.changed(topic=options.topic, topics=(), topic_pattern="")
    return settings.changed(kafka=kafka)


def run_collect_jmx(options: argparse.Namespace) -> int:
    """Collect until stopped.

    Raises:
        UserError: a setting is missing, or the topic cannot be used.
    """
    from kquota_spark.collect.agents import agents_of
    from kquota_spark.collect.collector import Collector
    from kquota_spark.process.graceful_stop import stop_event
    from kquota_spark.ship.topic import KafkaTopic

    settings = settings_of(options, "kafka", "collect")
    jmx, kafka = settings.collect.jmx, settings.kafka
    if not kafka.jmx_topic:
        raise UserError("kafka.jmx_topic: empty, expected the topic that samples go to")
    agents = agents_of(jmx)

    def connect() -> KafkaTopic:
        servers, named = kafka.bootstrap_servers, "collect.jmx.options"
        return KafkaTopic(
            servers, kafka.jmx_topic, client_id=jmx.client_id, options=jmx.options, options_name=named
        )

    if jmx.interval > settings.stream.episode_gap:
        _notice(
            "collect.jmx.interval is longer than stream.episode_gap: every sample would be an episode of its own"
        )
    stop = stop_event()
    collector = Collector(agents, connect, jmx.interval, _notice, now_ms)
    brokers = ", ".join(str(agent.broker_id) for agent in agents)
    _notice(f"collecting from broker {brokers} into {kafka.jmx_topic}; stop with Ctrl-C")
    _notice(f"sent {collector.run(stop)} messages")
    return 0
