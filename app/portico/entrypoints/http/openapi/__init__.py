"""API description: how routes describe themselves, public names, and the finished document."""
