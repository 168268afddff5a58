"""The sections of the report, the same for every form in which it is drawn.

Each module answers one question of the page. Texts are as clients sent them; the code that draws a page escapes them.

In reading order: changes, advice, buckets, limits, throttled, trust, usage.
"""
