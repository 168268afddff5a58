"""The report as sections of sentences, tables and charts, the same for every form in which it is drawn.

Each module answers one question of the page. Texts are as clients sent them; the code that draws a page escapes them.

In reading order: parts, words, changes, advice, buckets, limits, headline, throttled, trust, usage, opening, page.
"""
