"""Queries over the tables that join several of them: agreement with the brokers, findings.

Rooms, in reading order: scope, advice, clients, agreement, exported, timeline, gathered, sections, pages.
"""
