"""Tests of app.capabilities."""
