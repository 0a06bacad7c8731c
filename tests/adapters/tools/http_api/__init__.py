"""Tests of HTTP APIs as tools."""
