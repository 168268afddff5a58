"""The file that names the owners of clients.

In reading order: owners_file.
"""
