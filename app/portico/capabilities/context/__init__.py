"""The context of an inference: its pieces in order, and what is done to the history before a model reads it."""
