"""Tests of `app.capabilities.context`."""
