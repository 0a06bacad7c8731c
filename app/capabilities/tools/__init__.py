"""Tools: what is registered, what a call may do, how an attempt runs."""
