"""Tests of how tools are made, listed and run."""
