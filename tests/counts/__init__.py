"""The calls of functions of Portico that a request costs, and their bounds."""
