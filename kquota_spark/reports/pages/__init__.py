"""The whole report: gathered from the tables, and drawn as HTML, Markdown, CSV and JSON.

In reading order: gathering, headline, opening, page, page_data, page_html, page_markdown, page_names.
"""
