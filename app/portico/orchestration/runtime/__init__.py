"""Running executions: start, drive, recover, resume, fork, replay."""
