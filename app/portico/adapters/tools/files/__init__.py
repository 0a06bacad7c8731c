"""Files of callers: their directories, opened so that no link leads out, and their tools."""
