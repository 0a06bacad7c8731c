"""Tests of the HTTP entry point."""
