"""Text to facts: the only parsers there are. Pure Python on msgspec; a refusal comes with its reason."""
