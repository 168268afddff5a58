"""How well verdicts agree with the brokers, and whether the report can be trusted.

In reading order: span, agreement, agreement_evidence, confidence.
"""
