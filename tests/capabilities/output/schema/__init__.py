"""Tests of JSON Schemas."""
