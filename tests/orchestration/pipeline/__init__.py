"""Tests of `portico.orchestration.pipeline`."""
