"""`kquota collect jmx`: the brokers' own rates into the Kafka topic that the audit reads."""

from __future__ import annotations

import argparse

from kquota_spark.cli.options.options import add_config_option, settings_of
from kquota_spark.errors import UserError
from kquota_spark.process.clock import now_ms
from kquota_spark.process.notices import said_by

_say = said_by("collect")


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `collect jmx`."""
    group = subparsers.add_parser("collect", description=None)
    commands = group.add_subparsers(required=True, metavar="WHAT")
    jmx = commands.add_parser(
        "jmx",
        help="poll the Jolokia agents of the brokers",
        description="Polls the Jolokia agent of each broker (collect.jmx.brokers) and sends what its quota sensors"
        " say to the topic kafka.jmx_topic, until stopped. A broker that is away is left out until it is back.",
    )
    add_config_option(jmx)
    jmx.set_defaults(run=run_collect_jmx)


def run_collect_jmx(options: argparse.Namespace) -> int:
    """Collect until told to stop.

    Raises:
        UserError: a setting is missing, or the topic cannot be used.
    """
    from kquota_spark.collect.collector import Collector, agents_of
    from kquota_spark.process.graceful_stop import stop_event
    from kquota_spark.ship.topic import KafkaTopic

    settings = settings_of(options)
    jmx, kafka = settings.collect.jmx, settings.kafka
    if not kafka.jmx_topic:
        raise UserError("kafka.jmx_topic: empty, expected the topic that samples go to")
    agents = agents_of(jmx.brokers, jmx.user, jmx.password)

    def connect() -> KafkaTopic:
        servers, named = kafka.bootstrap_servers, "collect.jmx.options"
        return KafkaTopic(
            servers, kafka.jmx_topic, client_id=jmx.client_id, options=jmx.options, options_name=named
        )

    if jmx.interval > settings.stream.episode_gap:
        _say(
            "collect.jmx.interval is longer than stream.episode_gap: every sample would be an episode of its own"
        )
    stop = stop_event()
    collector = Collector(agents, connect, jmx.interval, _say, now_ms)
    brokers = ", ".join(str(agent.broker_id) for agent in agents)
    _say(f"collecting from broker {brokers} into {kafka.jmx_topic}; stop with Ctrl-C")
    _say(f"sent {collector.run(stop)} messages")
    return 0
