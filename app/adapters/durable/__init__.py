"""Who runs an execution: queueing, limits, ownership."""
