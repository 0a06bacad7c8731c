"""The prompts' texts and models, one family a module."""
