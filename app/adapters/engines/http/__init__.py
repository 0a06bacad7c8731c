"""HTTP engine: transport and engine for dialects over HTTP."""
