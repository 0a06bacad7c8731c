"""Every prompt that the service itself gives a model, defined once, by id [003]."""
