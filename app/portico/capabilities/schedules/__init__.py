"""Times at which something starts by itself: no I/O, no clock."""
