"""The operator's settings: frozen dataclasses, and a loader that reports every problem of a file at once.

In reading order: client_properties, substitution, roots, rules, routes, settings,
settings_yaml, own_clients, loader, contexts, governor, owners_file, first_settings.
"""
