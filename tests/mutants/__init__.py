"""Mutants: how much evidence the tests are. Each mutant is one small change of the code that a test should notice."""
