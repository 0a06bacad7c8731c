"""Tests of the credentials of clouds."""
