"""Memory: documents cut into chunks, and their search by words and by vectors."""
