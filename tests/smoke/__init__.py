"""The product on a real cluster of either kind, in minutes: what has to work before anything else is looked at."""
