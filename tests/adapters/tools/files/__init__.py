"""Tests of the isolation of programs."""
