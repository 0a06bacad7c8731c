"""Tests of the llama.cpp engine, as far as they need no model."""
