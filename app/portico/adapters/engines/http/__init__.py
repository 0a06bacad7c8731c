"""The engine of providers that are reached over HTTP, and its transport."""
