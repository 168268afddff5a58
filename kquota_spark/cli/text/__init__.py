"""Text on a terminal: tables, charts, widths, colours.

In reading order: dumbbell, waterfall, page, render, columns, timeline_chart.
"""
