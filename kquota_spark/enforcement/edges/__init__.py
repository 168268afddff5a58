"""What enforcement acts through: targets, leases, the log, the switch. Each under a port of `enforce.ports`.

In reading order: kafka_lease, admin_target, freeze_switch, log, zookeeper_lease, zookeeper_target.
"""
