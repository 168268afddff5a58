"""Commands that judge: quotas, clients, the audit itself.

In reading order: agreement, doctor, findings, replay_rows, replay_summary, replay_tables, window_comparison, replay,
whatif.
"""
