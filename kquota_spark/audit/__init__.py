"""The audit as a program, in the order of its flow.

queries: from topics to tables. stages: what workers do, and what they write. task_reports: what the driver hears of it.
commit: what the driver does with it. upkeep: what keeps the tables quick meanwhile.

Rooms, in reading order: violations, gaps, past.

In reading order: progress, audit_metrics, task_reports, own_clock, commit, upkeep, spark, stages, queries, job.
"""
