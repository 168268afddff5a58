"""The audit as a program, in the order of its flow.

queries: from topics to tables. stages: what the workers do and write. task_reports: what they report to the driver.
commit: what the driver does with the reports. upkeep: what keeps the tables fast meanwhile.

Rooms, in reading order: violations, gaps, past.

In reading order: progress, audit_metrics, task_reports, own_clock, commit, upkeep, spark, stages, queries, job.
"""
