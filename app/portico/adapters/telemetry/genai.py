"""Names that the semantic conventions of OpenTelemetry for generative AI give to the configured engines."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from portico.domain.value import value

_PROVIDER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"gemini": "gcp.gemini", "azure": "azure.ai.openai", "bedrock": "aws.bedrock", "vertex": "gcp.vertex_ai"}
)
"""Names of the providers whose scheme has another one."""


@value
class ModelName:
    """A configured model: its `gen_ai.provider.name` and `gen_ai.request.model`."""

    provider: str
    model: str

    @classmethod
    def of(cls, scheme: str, model: str) -> "ModelName":
        """Return the name of the model of a URL; a scheme without models is one itself."""
        return cls(_PROVIDER_NAMES.get(scheme, scheme), model or scheme)
