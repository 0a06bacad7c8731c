"""Fakes, servers and clocks that several tests share."""
