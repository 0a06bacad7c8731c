"""Ways out to the receivers of webhooks."""
