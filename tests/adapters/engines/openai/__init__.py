"""Tests of OpenAI's dialects."""
