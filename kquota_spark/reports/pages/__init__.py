"""The report as HTML, Markdown, CSV and JSON.

In reading order: page_csv, page_html, page_json, page_markdown, page_names.
"""
