"""Problems of quotas, of clients and of their audit, by our own thresholds, which are not part of the broker's rules.

In reading order: ring_check, agreement_causes, findings, client_findings, idle_rules, rule_findings, throttle_findings.
"""
