"""One message in the form of each receiver: pure functions, in which text of clients is always data.

In reading order: text, webhook, slack, alertmanager, mail.
"""
