"""Keys of recorded steps."""

PLAN_KEY = "plan"


PREPARE_KEY = "prepare"


STOP_KEY = "stop"
