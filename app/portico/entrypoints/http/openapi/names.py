"""Names of the API description: the tags, and the schemas whose names are not those of their classes."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TAGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "executions": "Run requests, and read, continue, cancel, fork, replay and delete what has run.",
        "sessions": "Conversations that outlast their executions, with their files.",
        "suspensions": "Open questions, approvals and unknown outcomes, and the answers to them.",
        "memory": "Documents that executions can search.",
        "schedules": "Requests that start by themselves.",
        "credentials": "Values that tools present elsewhere on behalf of their caller.",
        "webhooks": "Endpoints that hear of ends and suspensions, and what was delivered to them.",
        "catalogue": "What is configured: agents, tools, skills, flows, engines, prompts, errors and state machines.",
        "usage": "Tokens, cost and executions by day, key, user, agent or model.",
        "access": "The caller, and the keys of its tenant.",
        "clients": "The APIs of OpenAI and Anthropic, for the clients that speak them.",
        "operations": "The live list, counts over time, probes and metrics.",
    }
)
"""The tags by name. Each operation has one of them."""
_PUBLIC_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Event": "FallbackEvent",
        "State": "LifecycleState",
        "portico__domain__fallback__State": "FallbackState",
        "portico__domain__lifecycle__State": "LifecycleState",
        "ForkOverrides": "Overrides",
        "SuspensionView": "OpenSuspension",
        "ExecutionListPage": "ExecutionPage",
        "StepListPage": "StepPage",
    }
)
"""Schemas that only their modules tell apart, or that are called otherwise over HTTP."""
_PAGE = re.compile(r"Page_(\w+?)(View)?_(str|int)_")
_LIST = re.compile(r"Collection_(\w+?)(View)?_")


def public_name(generated: str) -> str:
    """Return the name of a schema in the description, from the one that FastAPI or pydantic has given it."""
    if generated in _PUBLIC_NAMES:
        return _PUBLIC_NAMES[generated]
    if page := _PAGE.fullmatch(generated):
        return f"{page[1]}Page"
    if whole := _LIST.fullmatch(generated):
        return f"{whole[1]}List"
    return generated
