"""`kquota status`: one line per part of the installation.

In reading order: part, of_job, of_tables, of_lease, of_enforcement, verdict, command.
"""
