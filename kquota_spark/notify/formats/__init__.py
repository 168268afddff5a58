"""The format of a message for each receiver: pure functions, in which text from clients is always data.

In reading order: text, webhook, slack, alertmanager, mail.
"""
