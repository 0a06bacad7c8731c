"""Requests and everything that they bring about, as recorded: answers, headers, events and stored executions."""
