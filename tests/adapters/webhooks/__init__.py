"""Tests of the ways out to the receivers of webhooks."""
