"""A real ZooKeeper and real Kafka brokers on this machine, for `make demo`, the tests and `kquota cluster`.

Nothing is simulated: the jars are Apache Kafka 3.9.1, the last line with ZooKeeper, fetched once by the Ivy
that is inside PySpark (`jars`); another declaration gives another version. `cluster` starts and stops the
servers, `load` is the traffic, `admin` makes topics and sets limits the way an administrator does.
Nothing here knows the audit: it makes the evidence, the product reads it.

Rooms, in reading order: setup, demo.

In reading order: settings, servers, readiness, cluster, admin, detached.
"""
