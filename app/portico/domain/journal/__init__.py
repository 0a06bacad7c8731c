"""Records of an execution: header, steps, events, status."""
