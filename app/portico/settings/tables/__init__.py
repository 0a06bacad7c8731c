"""Tables of the configuration, one module for each."""
