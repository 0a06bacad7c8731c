"""Bedrock dialect."""
