"""What the sections of the report are made of: tables, charts and cells, and the words on them.

In reading order: page_parts, words.
"""
