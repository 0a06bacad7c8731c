"""Tests of engine choice, failover and context windows."""
