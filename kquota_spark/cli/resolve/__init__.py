"""`kquota resolve` and `kquota explain`.

In reading order: question, worked_example, explanation, resolve, explain.
"""
