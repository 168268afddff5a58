"""The real implementations of the ports of `enforce.ports`: targets, leases, the log and the switch.

In reading order: admin, zookeeper, freeze_switch, log.
"""
