"""Constraint: an answer gets the form that was promised, or it is said what is wrong with it."""
