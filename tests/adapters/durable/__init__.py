"""Who runs executions."""
