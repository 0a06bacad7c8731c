"""An answer's form."""
