"""Runners."""
