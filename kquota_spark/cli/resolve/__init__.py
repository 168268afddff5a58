"""`kquota resolve` and `kquota explain`.

In reading order: question, explanation, resolve, explain.
"""
