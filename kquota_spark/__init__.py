"""Auditor of Apache Kafka client quotas: the broker's own verdicts, replayed from its request log.

Rooms, from the law to the edges (imports go down only):
`jobs -> cli -> io -> pipeline -> schema, config, formats -> model`.
`model/` knows Kafka's arithmetic and nothing else; `formats/` turns text into facts; `pipeline/` holds the
Spark transforms in the order of the flow; `io/` is the only place with sessions, servers and clocks.
"""

__version__ = "0.1.0"
