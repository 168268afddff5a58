"""Labelled runs on a real broker: which client `kquota slow` names, against the one that was made to slow the others.

In reading order: requests, plan, run, verdicts, __main__.
"""
