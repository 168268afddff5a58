"""Labelled runs on real brokers: which cause `kquota why` names first, against the cause that was made.

In reading order: wire, plan, nulls, mixtures, scenarios, run, recording, verdicts, __main__.
"""
