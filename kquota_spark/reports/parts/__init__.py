"""What the sections of the report are made of: tables, charts and cells, the words on them, and their registration.

In reading order: page_parts, words, report_section.
"""
