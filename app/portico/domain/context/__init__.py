"""The context of an inference: its terms in tokens, and what was chosen for it."""
