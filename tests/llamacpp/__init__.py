"""Comparisons with llama.cpp itself, where the optional package is installed."""
