"""Skills: their files, when they are of use, and which of them fit a budget of tokens."""
