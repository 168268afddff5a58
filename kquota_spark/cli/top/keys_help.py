"""What the screen of `kquota top` says about itself: keys and columns, in 60 columns."""

from __future__ import annotations

from kquota_spark.reports.timeline.top_buckets import SortBy

SORT_KEYS = {
    "u": SortBy.USED,
    "r": SortBy.RATE,
    "t": SortBy.DELAY,
    "n": SortBy.NAME,
    "b": SortBy.BROKER,
}
KEYS = (
    ("".join(SORT_KEYS), "sort", 1),
    ("R", "reverse", 6),
    ("B", "brokers", 5),
    ("T", "type", 6),
    ("/", "filter", 1),
    ("Enter", "chart", 2),
    ("e", "explain", 3),
    ("v", "violations", 4),
    ("p", "pause", 7),
    ("?", "help", 0),
    ("q", "quit", 0),
)
"""Key, what it does, and the rank by which it is left out of a narrow footer."""
HELP = (
    "j k, arrows  next and previous row, or scroll",
    "g G          first and last row; page up and down",
    "u r t n b    sort by used, rate, total delay, name, broker",
    "R            reverse the order",
    "/            filter by part of a name; Esc clears it",
    "T            only one quota type, one after the other",
    "B            one row per bucket, with its worst broker,",
    "             or one row per bucket and broker",
    "Enter        the bucket: chart, clients, last seconds",
    "e            explain: which rule sets the limit, and why",
    "v            violations of the bucket",
    "Esc          back",
    "p            pause: keep what is shown",
    "?            this help; Esc closes it",
    "q            quit",
    "",
    "broker       the worst; 2 of 3: it uses three brokers.",
    "             Worst by the sorted figure, else by used",
    "rate         the broker's own, in the newest second;",
    "             0 after 10 s without a request",
    "10 s mean    charged in the last 10 s, divided by 10",
    "used         rate in percent of the limit: yellow from",
    "             80 %, red over 100 %, where brokers throttle",
    "total delay  sum of the throttle times of the requests of",
    "             the last 10 s; from JMX the broker's mean",
    "time         clock time of the last 10 s in which the",
    " throttled   bucket was throttled",
    "throttled    requests of the last 10 s that were",
    " requests    throttled, of all requests",
    "clients      users or client ids in the last minute,",
    "             whichever are more",
    "last 60 s    percent of the limit, oldest first; blank:",
    "             no request",
    "rule         u/ user, c/ client id, * the default",
)
