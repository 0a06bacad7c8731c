"""OpenAI's models by name: what the official client knows of them, and what is known besides."""

from typing import get_args

import pytest
from openai.types.shared.chat_model import ChatModel
from openai.types.shared.responses_model import ResponsesModel

from portico.adapters.engines.openai.models import (
    is_openai_model,
    may_reason,
    requires_responses_api,
    supports_sampling,
)

CHAT = set(get_args(ChatModel))
RESPONSES_ALONE = set(get_args(get_args(ResponsesModel)[2]))
NO_CHAT_AFTER_ALL = {"gpt-5.1-codex", "codex-mini-latest", "gpt-5.2-pro", "gpt-5.2-pro-2025-12-11"}
"""Listed with the others by the client, refused by chat completions."""


@pytest.mark.parametrize("model", sorted(CHAT | RESPONSES_ALONE))
def test_the_models_that_speak_the_responses_api_alone_are_those_the_client_knows(model: str):
    assert is_openai_model(model)
    assert requires_responses_api(model) is (model in RESPONSES_ALONE | NO_CHAT_AFTER_ALL)


@pytest.mark.parametrize("model", ["gpt-5.3-codex-spark", "gpt-5.4-pro-2026-03-05", "ft:gpt-5-codex:org::id", "o3-pro"])
def test_models_that_the_client_does_not_list_yet_are_recognised_by_their_names(model: str):
    assert requires_responses_api(model)


@pytest.mark.parametrize(
    "model",
    [
        "gemini-2.5-pro",
        "gpt-oss-120b",
        "openai/gpt-5-pro",
        "codex",
        "qwen3-coder",
        "deepseek-prover",
        "ft:gpt-4o:my-pro-shop::id",
        "gpt-4o-professor",
    ],
)
def test_models_of_others_do_not_need_it(model: str):
    assert not requires_responses_api(model)


@pytest.mark.parametrize(
    ("model", "can"),
    [
        *((model, True) for model in ("o3-mini", "gpt-5-mini", "gpt-6-sol", "codex-mini-latest", "gpt-10")),
        *((model, False) for model in ("gpt-4.1", "gpt-3.5-turbo", "chatgpt-4o-latest", "gpt-5-chat-latest")),
        *((model, True) for model in ("grok-4", "gpt-oss-20b")),
    ],
)
def test_who_may_have_thoughts_to_keep(model: str, can: bool):
    assert may_reason(model) is can


@pytest.mark.parametrize(
    ("model", "effort", "takes"),
    [
        ("gpt-4o", None, True),
        ("gpt-4o", "low", True),
        ("o3", None, False),
        ("gpt-5", "minimal", False),
        ("gpt-5.1", None, True),
        ("gpt-5.1-2025-11-13", None, True),
        ("gpt-5.1", "none", True),
        ("gpt-5.1", "low", False),
        ("gpt-5.1-codex", None, False),
        ("gpt-5.4-mini-2026-03-17", None, True),
        ("gpt-5.5", None, False),
        ("gpt-5.5", "none", True),
        ("gpt-5.5", ["odd"], False),
        ("mistral-large", "high", True),
    ],
)
def test_sampling_is_for_models_that_do_not_reason(model: str, effort: object, takes: bool):
    assert supports_sampling(model, effort) is takes
