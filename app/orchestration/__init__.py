"""How a request runs."""
