"""Tests of who runs executions."""
