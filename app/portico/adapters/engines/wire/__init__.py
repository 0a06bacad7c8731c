"""Parts that several dialects share."""
