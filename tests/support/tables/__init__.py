"""Rows and tables that tests read, made from literals and from captures."""
