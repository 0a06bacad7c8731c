"""OpenAI's two APIs at Azure, whose resources have keys of their own kind.

A request with a token of Entra instead has no key, and its header is added where the token is found.
"""

from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect


class AzureChatCompletionsDialect(ChatCompletionsDialect):
    """Implements `Dialect`."""

    def headers(self, key: str | None) -> dict[str, str]:
        return {"api-key": key} if key else {}


class AzureResponsesDialect(ResponsesDialect):
    """Implements `Dialect`."""

    def headers(self, key: str | None) -> dict[str, str]:
        return {"api-key": key} if key else {}
