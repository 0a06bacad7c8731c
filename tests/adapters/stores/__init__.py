"""Tests of the journals."""
