"""Every dialect with the capabilities of its engines and an example of the opaque blocks that it gets back."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.bedrock.dialect import BedrockDialect
from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.ports.model import EngineCapabilities, EngineProfile
from tests.adapters.engines.cases import OpaqueBlocks


@dataclass(frozen=True)
class DialectCase:
    """One dialect. `kept` is what came with the text `Rolling.` and the one call `call_1`, as `Reply.kept` holds it."""

    dialect: Dialect
    model: str
    capabilities: EngineCapabilities
    kept: OpaqueBlocks = ()

    def profile(self, options: frozenset[str] = frozenset()) -> EngineProfile:
        return EngineProfile("primary", self.model, "any", 128_000, 4_096, options, None, self.capabilities)


THOUGHTS: OpaqueBlocks = (
    {"type": "thinking", "thinking": "A die is needed.", "signature": "c2lnbmVk"},
    {"type": "redacted_thinking", "data": "c2VhbGVk", "index": 1},
)
DIALECTS: Mapping[str, DialectCase] = MappingProxyType(
    {
        "openai": DialectCase(
            ChatCompletionsDialect(),
            "gpt-4.1-mini",
            EngineCapabilities(schema=True, schema_with_tools=True, embeddings=True),
        ),
        "openai_compatible": DialectCase(
            ChatCompletionsDialect(),
            "qwen3-8b",
            EngineCapabilities(schema=True, grammar=True, embeddings=True, streaming_usage=False),
            kept=(
                {"reasoning_content": "A die is needed."},
                {"extra_content": {"google": {"thought_signature": "dGV4dA=="}}},
                {"reasoning_detail": {"type": "reasoning.text", "index": 0}, "text": "A die is", "signature": "c2Vl"},
                {"reasoning_detail": {"type": "reasoning.encrypted", "index": 1}, "data": "c2VhbGVk"},
                {"call": "call_1", "signature": "c2lnbmVk"},
            ),
        ),
        "openai_responses": DialectCase(
            ResponsesDialect(),
            "gpt-5-codex",
            EngineCapabilities(schema=True, schema_with_tools=True, embeddings=True),
            kept=(
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [{"type": "summary_text", "text": "A die is needed."}],
                    "encrypted_content": "c2VhbGVk",
                },
                {"type": "message", "characters": 8, "phase": "commentary"},
                {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "c2VhbGVkIHRvbw=="},
                {"type": "function_call", "call_id": "call_1"},
            ),
        ),
        "anthropic": DialectCase(
            AnthropicDialect(),
            "claude-opus-5-5",
            EngineCapabilities(schema=True, schema_with_tools=True, forced_calls=False),
            kept=THOUGHTS,
        ),
        "anthropic_4_5": DialectCase(
            AnthropicDialect(),
            "claude-haiku-4-5",
            EngineCapabilities(schema=True, schema_with_tools=True),
            kept=THOUGHTS,
        ),
        "bedrock": DialectCase(
            BedrockDialect(),
            "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
            EngineCapabilities(schema=True, forced_calls=False),
            kept=(
                {"reasoningText": "A die is needed.", "signature": "c2lnbmVk"},
                {"redactedContent": "c2Vh", "index": 1},
            ),
        ),
        "ollama": DialectCase(
            OllamaDialect(),
            "qwen3:8b",
            EngineCapabilities(schema=True, forced_calls=False, embeddings=True),
            kept=({"thinking": "A die is needed."},),
        ),
        "gemini": DialectCase(
            GeminiDialect(),
            "gemini-3-flash-preview",
            EngineCapabilities(schema=True, embeddings=True),
            kept=(
                {"part": {"text": "A die is needed.", "thoughtSignature": "dGhvdWdodA==", "thought": True}},
                {"part": {"text": "", "thoughtSignature": "dGV4dA=="}},
                {"call": "call_1", "signature": "c2lnbmVk"},
            ),
        ),
    }
)
"""By the name of their directory of goldens."""
