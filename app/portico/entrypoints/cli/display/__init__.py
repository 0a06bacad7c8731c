"""Live views, trees, tables and questions in the terminal."""
