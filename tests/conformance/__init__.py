"""One behaviour suite a port, run over every adapter of it."""
