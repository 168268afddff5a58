"""Text for people: escaped, cut, and in units.

In reading order: escape, person_units.
"""
