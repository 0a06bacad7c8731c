"""Tests of the tools of MCP servers."""
