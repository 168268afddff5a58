"""Episodes: violated seconds of decisions, joined, in the table `violations`.

In reading order: episodes, judged, stored, log_spans, late, fold, rebuild.
"""
