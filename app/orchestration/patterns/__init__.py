"""The patterns: deterministic code over one door."""
