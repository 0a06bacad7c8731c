"""Builders of engines: the module of a scheme is imported when an engine of it is built."""
