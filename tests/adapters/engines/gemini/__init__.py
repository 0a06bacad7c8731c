"""Tests of Gemini's dialect."""
