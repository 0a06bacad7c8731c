"""Tests of the client APIs."""
