"""Queries that join several tables: agreement with the brokers, findings, timelines, the report.

Rooms, in reading order: scope, why, advice, clients, agreement, impact, budgets, exported, timeline, review, parts,
right_sizes, sections, pages.
"""
