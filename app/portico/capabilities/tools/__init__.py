"""Tools: registry, definitions, and the execution of calls."""
