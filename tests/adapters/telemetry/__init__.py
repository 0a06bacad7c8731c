"""Tests of logs, metrics and the lag watchdog."""
