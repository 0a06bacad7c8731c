"""Logic over ports: models, output formats, prompts and tools."""
