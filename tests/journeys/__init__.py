"""Journeys: tests of whole deployments through HTTP, as users use them."""
