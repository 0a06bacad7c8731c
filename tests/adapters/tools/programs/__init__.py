"""Tests of programs as tools."""
