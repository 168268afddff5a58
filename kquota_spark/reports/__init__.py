"""Queries over the tables that join several of them: agreement with the brokers, findings."""
