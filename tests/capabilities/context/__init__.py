"""Tests of `portico.capabilities.context`."""
