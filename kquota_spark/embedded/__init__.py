"""A real ZooKeeper and real Kafka brokers on this machine, for `make demo`, the tests and `kquota cluster`.

Nothing is simulated. The jars are Apache Kafka 3.9.1, the last line with ZooKeeper; another declaration gives another
version. The Ivy inside PySpark fetches them once (`jars`). `cluster` starts and stops the servers, `load` makes the
traffic, `admin` creates topics and sets limits like an administrator. The servers and the traffic are independent of
the audit: they produce the evidence, and the product reads it.

Rooms, in reading order: setup, demo.

In reading order: settings, servers, readiness, cluster, admin, detached.
"""
