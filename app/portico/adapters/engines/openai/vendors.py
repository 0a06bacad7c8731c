"""Table of the vendors that speak OpenAI's APIs: what each of them takes beyond what all of them take.

A server that is not known is `generic`: it gets nothing that some servers refuse.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from portico.domain.value import value


class ReasoningForm(StrEnum):
    """The parameter that says how much a model reasons; in the Responses API an effort is always `reasoning.effort`."""

    EFFORT = "reasoning_effort"
    NESTED_EFFORT = "reasoning.effort"
    THINKING_TYPE = "thinking.type"
    ENABLE_THINKING = "chat_template_kwargs.enable_thinking"


@value
class Vendor:
    """Facts about a vendor.

    `reasoning` is the form of the reasoning hint. A vendor with `documents` or `audio` takes OpenAI's parts of that
    kind, if its model does. `prices` names the table of known models with its windows and prices, where it has one.
    `hosts` are those of its API; a host within one of them is the vendor's, too.
    """

    reasoning: ReasoningForm
    documents: bool = False
    audio: bool = False
    prompt_cache_key: bool = False
    prices: str | None = None
    hosts: tuple[str, ...] = ()


OPENAI: Final = "openai"
GENERIC: Final = "generic"
_EFFORT: Final = ReasoningForm.EFFORT
_AZURE_HOSTS: Final = ("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com")
VENDORS: Final[Mapping[str, Vendor]] = MappingProxyType(
    {
        OPENAI: Vendor(
            _EFFORT, documents=True, audio=True, prompt_cache_key=True, prices="openai", hosts=("api.openai.com",)
        ),
        "azure": Vendor(_EFFORT, documents=True, audio=True, prompt_cache_key=True, prices="azure", hosts=_AZURE_HOSTS),
        "openrouter": Vendor(
            ReasoningForm.NESTED_EFFORT, documents=True, audio=True, prices="openrouter", hosts=("openrouter.ai",)
        ),
        "deepseek": Vendor(ReasoningForm.THINKING_TYPE, prices="deepseek", hosts=("api.deepseek.com",)),
        "mistral": Vendor(_EFFORT, prices="mistral", hosts=("api.mistral.ai",)),
        "groq": Vendor(_EFFORT, prices="groq", hosts=("api.groq.com",)),
        "together": Vendor(_EFFORT, prices="together", hosts=("api.together.xyz", "api.together.ai")),
        "fireworks": Vendor(_EFFORT, prices="fireworks", hosts=("api.fireworks.ai",)),
        "xai": Vendor(_EFFORT, prices="xai", hosts=("api.x.ai",)),
        "vllm": Vendor(ReasoningForm.ENABLE_THINKING, audio=True),
        "sglang": Vendor(ReasoningForm.ENABLE_THINKING),
        "ollama": Vendor(_EFFORT),
        "llamacpp": Vendor(ReasoningForm.ENABLE_THINKING, audio=True),
        GENERIC: Vendor(_EFFORT, prices="openai"),
    }
)
"""Every vendor of `openai://`. The models of an unknown server often have OpenAI's names and are known by them."""


def vendor_of(base_url: str | None) -> str:
    """Return the name of the vendor whose server that is; without a URL it is OpenAI's."""
    if base_url is None:
        return OPENAI
    host = f".{urlsplit(base_url).hostname}"
    known = (name for name, vendor in VENDORS.items() if any(host.endswith(f".{each}") for each in vendor.hosts))
    return next(known, GENERIC)
