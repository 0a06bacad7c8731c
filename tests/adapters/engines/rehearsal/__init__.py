"""Tests of the rehearsal engine."""
