"""Benchmarks: the service on one core, the load and a fast local upstream on another, and a bound for each number."""
