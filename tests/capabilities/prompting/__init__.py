"""What the service tells models in words of its own."""
