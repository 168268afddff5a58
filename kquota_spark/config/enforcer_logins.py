"""The enforcer's own logins, if the settings have some: then programs that only read quotas cannot write them."""

from __future__ import annotations

from kquota_spark.config.settings import Settings


def for_enforcer(settings: Settings) -> Settings:
    """The settings with the enforcer's logins instead of the audit's."""
    own = settings.enforcement
    kafka = settings.kafka.changed(options=own.options) if own.options else settings.kafka
    login = own.zookeeper_login
    quotas = settings.quotas.changed(zookeeper_login=login) if login.user else settings.quotas
    return settings.changed(kafka=kafka, quotas=quotas)


def enforcer_options(settings: Settings) -> str:
    """The key of the enforcer's client properties, for messages."""
    return "enforcement.options" if settings.enforcement.options else "kafka.options"


def enforcer_zookeeper_login(settings: Settings) -> str:
    """The key of the enforcer's login at ZooKeeper, for messages."""
    return f"{'enforcement' if settings.enforcement.zookeeper_login.user else 'quotas'}.zookeeper_login"
