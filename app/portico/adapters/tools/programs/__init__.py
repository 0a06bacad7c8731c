"""Programs as tools: command templates, contained processes and their output."""
