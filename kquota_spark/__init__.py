"""Auditor of Apache Kafka client quotas: the broker's own verdicts, replayed from its request log.

`model` is the law, `findings` what we read out of it, `formats` turns text into facts, `pipeline` holds the Spark
transforms in the order of the flow. `process`, `store`, `kafka` and `zookeeper` are the edges. The programs stand on
them: `quotas`, `ship`, `collect`, `replay`, `audit`, `doctor`, `gateway`, `enforcement`. `reports` and `cli` are what
people look at; `embedded` is the cluster to try all of it on. Imports go down only: `tests/architecture` has the order.

In reading order: bounded_yaml, errors.
"""

__version__ = "0.1.0"
