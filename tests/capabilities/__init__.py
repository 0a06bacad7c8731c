"""Tests of portico.capabilities."""
