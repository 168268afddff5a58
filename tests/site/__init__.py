"""The documentation: its site, its references made from the code, and the outputs that its pages show."""
