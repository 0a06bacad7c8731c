"""Prints the numbers of all ways: `python -m tests.counts`. With the name of a way: the functions that make it up."""

import sys

from tests.counts.bounds import BOUNDS, CHAT_BOUNDS
from tests.counts.ways import functions, measured_ways, packages

ways = measured_ways()
if len(sys.argv) > 1:
    sys.stdout.write(functions(ways[sys.argv[1]]) + "\n")
    sys.exit()
for name, way in ways.items():
    sys.stdout.write(f"{name:<40} {way.number:>6} {BOUNDS.get(name, '-'):>6}\n")
for name, calls in sorted(packages(ways["chat"]).items()):
    sys.stdout.write(f"  chat: {name:<32} {calls:>6} {CHAT_BOUNDS.get(name, '-'):>6}\n")
