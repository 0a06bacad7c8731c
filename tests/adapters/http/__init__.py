"""Tests of code that adapters share which send requests."""
