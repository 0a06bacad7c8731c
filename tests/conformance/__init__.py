"""Conformance: one test suite for each port, run with every adapter."""
