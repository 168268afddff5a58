"""The flow, in order: ingest, measure, govern, judge. DataFrame to DataFrame; no I/O.

Why hops with Delta between them: each is an ordinary exactly-once query, and decisions can be rebuilt
under other rules from `usage` or `requests` without touching Kafka. Why the verdict is not a window: the
broker's samples open on events; a sliding 11 s window gives 2 to 16 % wrong verdicts, a tumbling one up to
49 %. The replay (`kquota_spark.model.replay`) gives the broker's own.
"""
