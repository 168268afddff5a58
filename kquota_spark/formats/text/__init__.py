"""Text for people: escaped, shortened, and in units.

In reading order: escape, shell_words, person_units, person_values.
"""
