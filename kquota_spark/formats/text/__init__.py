"""Text for people: escaped, shortened, and in units.

In reading order: escape, person_units, person_values.
"""
