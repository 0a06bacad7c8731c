"""Architecture rules, checked on the source code."""
