"""Tests of portico.capabilities.schedules."""
