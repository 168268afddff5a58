"""Text on a terminal: tables, charts, widths, colours.

In reading order: dumbbell, terminal_width, wrapping, page, table_layout, render, sparkline, timeline_chart,
topic_page.
"""
