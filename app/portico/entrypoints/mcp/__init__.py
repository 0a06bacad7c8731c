"""MCP server: agents, flows and executions as tools and resources of the Model Context Protocol."""
