"""Gemini dialect."""
