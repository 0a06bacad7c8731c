"""Output contracts: extraction, repair, validation, voting."""
