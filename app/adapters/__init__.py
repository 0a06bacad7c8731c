"""How the world answers: each module implements one port."""
