"""The report as HTML, Markdown, CSV and JSON.

In reading order: page_data, page_html, page_markdown, page_names.
"""
