"""What operators see: logs and metrics, made from events."""
