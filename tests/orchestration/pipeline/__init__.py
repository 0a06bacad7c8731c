"""Tests of `app.orchestration.pipeline`."""
