"""Measures the service against its bounds: one process on one core, the load and a fast local upstream on another."""
