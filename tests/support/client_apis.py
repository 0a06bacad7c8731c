"""Names of models for the tests of client APIs, and the parameters that all of these APIs treat alike."""

from collections.abc import Mapping, Sequence
from typing import Any

from portico.domain.access.principal import ALL, Permissions
from portico.domain.contract.request import OutputContract
from portico.domain.lifecycle import Mode
from portico.entrypoints.http.client_apis.models import ModelNames
from portico.orchestration.facade import ServedAgent, ServedModels

UNSUPPORTED: Sequence[tuple[str, Any]] = (
    ("n", 2),
    ("logprobs", True),
    ("top_logprobs", 3),
    ("logit_bias", {"50256": -100}),
    ("audio", {"voice": "alloy", "format": "wav"}),
    ("modalities", ["text", "audio"]),
    ("prediction", {"type": "content", "content": "x"}),
    ("functions", [{"name": "f"}]),
    ("function_call", {"name": "f"}),
    ("prompt", {"id": "pmpt_1"}),
    ("max_tool_calls", 3),
    ("truncation", "auto"),
    ("web_search_options", {"search_context_size": "low"}),
)
"""Every parameter that is refused, with a value that would have an effect."""
NEUTRAL: Sequence[tuple[str, Any]] = (
    *((name, None) for name, _ in UNSUPPORTED),
    *(("n", 1), ("logprobs", False), ("top_logprobs", 0), ("logit_bias", {}), ("modalities", ["text"])),
    *(("functions", []), ("truncation", "disabled"), ("web_search_options", {})),
)
"""Their values without effect."""


def model_names(aliases: Mapping[str, str] | None = None, permissions: Permissions = ALL) -> ModelNames:
    """Return the names of a service with two agents, two engines on one route, and a flow."""
    served = ServedModels(
        agents={
            "support": ServedAgent(Mode.CHAT, "fast", OutputContract(), frozenset({"search", "ask_person"})),
            "jury": ServedAgent(Mode.REDUNDANT, None, OutputContract(), frozenset()),
        },
        options={
            "default": frozenset({"reasoning_effort"}),
            "fast": frozenset(),
            "deep": frozenset({"reasoning_effort"}),
        },
        flows=frozenset({"triage"}),
        person_tools=frozenset({"ask_person"}),
    )
    return ModelNames(aliases or {}, served, permissions)
