"""How well verdicts agree with the brokers, and whether the page may be trusted.

In reading order: agreement, agreement_evidence, confidence.
"""
