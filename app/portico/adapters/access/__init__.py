"""Authentication of callers: API keys, and tokens of an issuer."""
