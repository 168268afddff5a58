"""Text on a terminal: tables, charts, widths, colours.

In reading order: dumbbell, page, render, timeline_chart.
"""
