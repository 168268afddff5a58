"""Auditor of Apache Kafka client quotas: the broker's own verdicts, replayed from its request log.

`model` holds Kafka's rules for quotas, and `findings` draws conclusions from them. `formats` parses text into records.
`pipeline` holds the Spark transforms in the order of the data flow. `process`, `store`, `kafka` and `zookeeper` are the
edges. The programs use them: `quotas`, `ship`, `collect`, `replay`, `evidence`, `rightsize`, `audit`, `doctor`,
`gateway`, `enforcement`.
`reports` and `cli` are the user's view. `embedded` is a cluster for trying all of it. Imports go down only:
`tests/architecture` has the order.

In reading order: bounded_yaml, errors, name_patterns.
"""

__version__ = "0.1.0"
