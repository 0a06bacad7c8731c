"""Guards of the texts that come in, and the patterns of sensitive text."""
