"""The flow of JMX samples.

In reading order: ingest, limits, judge.
"""
