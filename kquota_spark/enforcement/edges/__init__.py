"""The real implementations of the ports of `enforce.ports`: leases, the log and the switch. Clusters are in `quotas`.

In reading order: kafka_lease, zookeeper_lease, freeze_switch, log.
"""
