"""Tools of MCP servers: one connection a server, its list of tools, and calls."""
