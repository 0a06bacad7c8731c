"""Validation in worker processes with a hard limit of time and memory."""
