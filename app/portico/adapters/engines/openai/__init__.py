"""OpenAI dialects: chat completions and responses."""
