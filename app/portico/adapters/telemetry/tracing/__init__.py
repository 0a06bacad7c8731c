"""Traces: spans that are built from events, and their export over OTLP. Imported only if an endpoint is configured."""
