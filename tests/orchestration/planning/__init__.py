"""Tests of what makes plans."""
