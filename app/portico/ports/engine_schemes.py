"""Table of the schemes of engines: everything that is known of an engine by the scheme of its model URL."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from portico.domain.value import value
from portico.ports.model import EngineCapabilities

DEFAULT_CONTEXT_WINDOW: Final = 128_000
_LOCAL_CONTEXT_WINDOW: Final = 16_384
"""A local server allocates memory for the whole window that it is asked for."""


@value
class EngineScheme:
    """Facts about a scheme, which hold for its engines unless the configuration or a known model differs.

    After `scheme://` follows a model, or the path of a file (`names_file`), or the address of a server and a model
    (`names_server`), or the `places` of a cloud and a model, or nothing (`names_nothing`). An offline engine runs in
    this process and has no connection; any other has a `base_url`, in which the names of places stand for them.
    `api_key_env` is the variable whose presence selects `default_model` if no engine is configured. `context_window`
    is in tokens. A scheme that `marks_prompt_caches` has a request say what to cache. One that `has_vendors` is spoken
    by servers of many vendors. `known_models` names the table of its known models.
    `features` are the capabilities that its API has for those models that are known to have them.
    """

    capabilities: EngineCapabilities
    base_url: str = ""
    names_file: bool = False
    names_server: bool = False
    places: tuple[str, ...] = ()
    names_nothing: bool = False
    is_offline: bool = False
    has_apis: bool = False
    has_vendors: bool = False
    marks_prompt_caches: bool = False
    known_models: str | None = None
    features: tuple[str, ...] = ()
    context_window: int = DEFAULT_CONTEXT_WINDOW
    api_key_env: str | None = None
    default_model: str = ""


SCHEMES: Mapping[str, EngineScheme] = MappingProxyType(
    {
        "openai": EngineScheme(
            EngineCapabilities(schema=True, schema_with_tools=True, embeddings=True),
            "https://api.openai.com/v1",
            has_apis=True,
            has_vendors=True,
            marks_prompt_caches=True,
            known_models="openai",
            api_key_env="OPENAI_API_KEY",
            default_model="gpt-4o-mini",
        ),
        # The API refuses a forced call beside extended thinking. A schema is kept as a contract [flow seed]; a model
        # that keeps one natively is configured so.
        "anthropic": EngineScheme(
            EngineCapabilities(forced_calls=False),
            "https://api.anthropic.com",
            marks_prompt_caches=True,
            known_models="anthropic",
            features=("reasoning", "documents"),
            api_key_env="ANTHROPIC_API_KEY",
            default_model="claude-haiku-4-5",
        ),
        "gemini": EngineScheme(
            EngineCapabilities(schema=True, embeddings=True),
            "https://generativelanguage.googleapis.com",
            known_models="gemini",
            features=("reasoning", "documents", "audio"),
            api_key_env="GEMINI_API_KEY",
            default_model="gemini-2.5-flash",
        ),
        "azure": EngineScheme(
            EngineCapabilities(schema=True, schema_with_tools=True, embeddings=True),
            "https://RESOURCE.openai.azure.com/openai/v1",
            places=("RESOURCE",),
            has_apis=True,
            marks_prompt_caches=True,
            known_models="azure",
            features=("reasoning", "documents", "audio"),
        ),
        # Only some models keep a schema, and a forced call is refused beside reasoning: configured where it is so.
        "bedrock": EngineScheme(
            EngineCapabilities(forced_calls=False),
            "https://bedrock-runtime.REGION.amazonaws.com",
            places=("REGION",),
            marks_prompt_caches=True,
            known_models="bedrock",
            features=("reasoning", "documents"),
        ),
        "vertex": EngineScheme(
            EngineCapabilities(schema=True),
            "https://LOCATION-aiplatform.googleapis.com/v1",
            places=("PROJECT", "LOCATION"),
            marks_prompt_caches=True,
            known_models="gemini",
            features=("reasoning", "documents", "audio"),
        ),
        "ollama": EngineScheme(
            EngineCapabilities(schema=True, forced_calls=False, embeddings=True),
            "http://127.0.0.1:11434",
            names_server=True,
            features=("reasoning",),
            context_window=_LOCAL_CONTEXT_WINDOW,
        ),
        "llamacpp": EngineScheme(
            EngineCapabilities(schema=True, grammar=True, tools=False, forced_calls=False, images=False),
            names_file=True,
            is_offline=True,
            context_window=_LOCAL_CONTEXT_WINDOW,
        ),
        "rehearsal": EngineScheme(
            EngineCapabilities(schema=True, schema_with_tools=True, grammar=True, embeddings=True),
            names_nothing=True,
            is_offline=True,
        ),
        "scripted": EngineScheme(
            EngineCapabilities(schema=True, schema_with_tools=True, grammar=True), names_file=True, is_offline=True
        ),
    }
)
"""Every scheme, in the order of preference for a default engine.

The composition root has a module for each, which builds its engines.
"""
