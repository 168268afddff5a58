"""What enforcement acts through: targets, leases, the log, the switch. Each under a port of `enforce.ports`.

In reading order: admin, zookeeper, freeze_switch, log.
"""
