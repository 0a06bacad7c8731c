"""Code that adapters share which send requests: the guard of addresses."""
