"""Whole journeys through the service as its users make them."""
