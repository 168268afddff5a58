"""What is wrong with quotas and clients, and with the audit of them: our own thresholds, apart from the broker's law.

In reading order: ring_check, window_check, agreement_causes, findings, client_id_findings, diagnosis,
misencoded_entities, idle_rules, mangled_names, quota_edit_findings, rule_findings, share_findings, throttle_findings.
"""
