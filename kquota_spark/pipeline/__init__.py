"""The flow, in order: ingest, charges, measure, govern, judge. No I/O: `audit.stages` writes what comes by.

What costs a Python call a row works on Arrow batches. What groups rows is Spark's, DataFrame to DataFrame. Why the
verdict is not a window: the broker's samples open on events; a sliding 11 s window gives 2 to 16 % wrong verdicts, a
tumbling one up to 49 %. The replay (`kquota_spark.model.replay.replay`) gives the broker's own.

Rooms, in reading order: jmx.

In reading order: known, packed_points, sent, bucket_judge, charges, govern, line_columns, ingest, kept_imports,
judge, kept_requests, measure, rejudge, restarts.
"""
