"""Inferences of an execution and their attempts on providers."""
