"""Composition of the verification of an audit log, for the command line."""

from portico.adapters.audit.verification import verify

__all__ = ["verify"]
