"""Tests of the definition, the registry and the execution of tools."""
