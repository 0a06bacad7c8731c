"""Tests of the validation in worker processes."""
