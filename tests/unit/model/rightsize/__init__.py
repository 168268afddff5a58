"""Tests of right sizes."""
