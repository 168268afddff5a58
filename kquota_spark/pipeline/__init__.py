"""The flow, in order: ingest, charges, measure, govern, judge. No I/O: `audit.stages` writes the rows.

Work that would cost a Python call per row uses Arrow batches. Spark groups the rows, from DataFrame to DataFrame. A
verdict is not a window of Spark, because the broker's samples open on events. A sliding 11 s window gives 2 to 16 %
wrong verdicts, a tumbling one up to 49 %. The replay (`kquota_spark.model.replay.replay`) gives the broker's own.

Rooms, in reading order: jmx.

In reading order: known, packed_points, sent, bucket_judge, charges, govern, line_columns, ingest, kept_imports,
judge, kept_requests, measure, rejudge, restarts.
"""
