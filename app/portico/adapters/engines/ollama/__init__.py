"""Ollama dialect."""
