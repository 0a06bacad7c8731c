"""What we can do: logic over ports."""
