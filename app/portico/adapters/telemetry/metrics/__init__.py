"""Prometheus metrics: the catalogue of series, their values, and the event sink that fills them."""
