"""Tests of the HTTP engine and its transport."""
