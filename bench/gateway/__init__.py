"""Gateways before replicas that are restarted and killed under load, with the files of deploy/gateway."""
