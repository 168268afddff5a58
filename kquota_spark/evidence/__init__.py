"""Evidence for one decision: rebuilt from its log lines, its rules and the broker's windows, here or elsewhere.

`rebuilding` has the one pure function that rebuilds a decision from its inputs. The tables and a bundle give it the
same inputs.

In reading order: rebuilding, lines, log_topic, stored, masking, chain, parts, bundle, verification.
"""
