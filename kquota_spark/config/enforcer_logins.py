"""The enforcer's own logins, where the settings give it some: who only reads quotas cannot write them then."""

from __future__ import annotations

from kquota_spark.config.settings import Settings


def for_enforcer(settings: Settings) -> Settings:
    """The settings with the logins of the enforcer in the place of the audit's."""
    own = settings.enforcement
    kafka = settings.kafka.changed(options=own.options) if own.options else settings.kafka
    login = own.zookeeper_login
    quotas = settings.quotas.changed(zookeeper_login=login) if login.user else settings.quotas
    return settings.changed(kafka=kafka, quotas=quotas)


def enforcer_options(settings: Settings) -> str:
    """The key that the enforcer's client properties stand at, for messages."""
    return "enforcement.options" if settings.enforcement.options else "kafka.options"


def enforcer_zookeeper_login(settings: Settings) -> str:
    """The key of its login at ZooKeeper, for messages."""
    return f"{'enforcement' if settings.enforcement.zookeeper_login.user else 'quotas'}.zookeeper_login"
