"""The console: pages at `/console`, which read the public API alone."""
