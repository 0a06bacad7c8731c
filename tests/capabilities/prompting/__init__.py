"""Tests of the prompts that the service itself gives a model."""
