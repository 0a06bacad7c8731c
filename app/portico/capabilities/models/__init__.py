"""Engine choice, failover and context windows."""
