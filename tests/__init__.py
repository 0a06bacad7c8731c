"""Tests: they mirror `app/portico`, with what several of them share in `support`."""
