"""Providers' servers as their references describe them: a request is checked as they would, the answer is scripted."""
