"""Portico, the orchestration facade for LLM agents."""
