"""Tests: they mirror `app`, with what several of them share in `support`."""
