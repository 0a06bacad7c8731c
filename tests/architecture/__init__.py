"""The rules of the house, read from the code itself."""
