"""HTTP APIs as tools: URL templates, the guard of addresses, and the call."""
