"""Commands that check quotas, clients and the audit itself.

In reading order: agreement, doctor, findings_page, findings, replay_results, window_comparison, replay, whatif_table,
whatif, migration.
"""
