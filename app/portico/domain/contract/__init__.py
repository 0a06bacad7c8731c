"""Contract of the service: requests and responses."""
