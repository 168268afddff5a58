"""All parts of the product at the same time, and what disturbs them.

proxy: a network that can be cut. parts: programs that are started again whatever ends them. clients: press on
whatever happens. world: a cluster, all parts, and a small disk. walk: disturbs them, one trouble after the other.
"""
