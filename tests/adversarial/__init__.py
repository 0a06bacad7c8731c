"""Tests that attack the isolation of programs, in namespaces of their own."""
