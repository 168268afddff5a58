"""What is wrong with quotas and clients, and with the audit of them: our own thresholds, apart from the broker's law.

In reading order: ring_check, agreement_causes, findings, client_findings, idle_rules, rule_findings, throttle_findings.
"""
