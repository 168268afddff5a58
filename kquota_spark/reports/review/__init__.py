"""A change of quotas, reviewed before it is merged: its effect on recorded traffic, and whether a person must decide.

In reading order: review, names, capacity, screen, affected, verdict, gathering, code_spans, wording, comment,
answer.
"""
