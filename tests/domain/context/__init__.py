"""Tests of guards and reports of contexts."""
