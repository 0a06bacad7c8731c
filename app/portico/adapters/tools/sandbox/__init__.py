"""Isolation of programs: the levels, the box of each, and the watch over what runs in it."""
