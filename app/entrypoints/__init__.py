"""How people reach us: translate, call the facade, translate back."""
