"""Entry points: HTTP and the command line, as translations to and from the facade."""
