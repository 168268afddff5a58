"""Text for people: escaped, cut, and in units.

In reading order: escape, distinct_cuts, person_units.
"""
