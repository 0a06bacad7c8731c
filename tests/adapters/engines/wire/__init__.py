"""Tests of what the dialects share."""
