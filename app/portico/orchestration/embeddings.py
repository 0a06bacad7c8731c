"""Embeddings of texts that a caller sends, outside of any execution: without a record, and within its limits."""

from collections.abc import Sequence

from portico.capabilities.limits.quotas import RunSlot
from portico.capabilities.memory.embedder import EmbeddedTexts, EmbeddingError, EngineEmbedder
from portico.domain.access.principal import Permission, Principal
from portico.domain.failures import Code, Failure, InferenceFailure, failure
from portico.domain.model_call import RULES
from portico.orchestration.execution.environment import Environment
from portico.orchestration.rights import denied, require
from portico.ports.model import EngineError


class DirectEmbeddings:
    """Vectors of the configured embedder. `name` is that of its engine; None without one."""

    def __init__(self, environment: Environment, embedder: EngineEmbedder | None) -> None:
        self._environment = environment
        self._embedder = embedder

    @property
    def name(self) -> str | None:
        """The name of the engine; None if no engine embeds."""
        return None if self._embedder is None else self._embedder.space.embedder

    @property
    def dimension(self) -> int | None:
        """The configured size of the vectors; None if the engine chooses it."""
        return None if self._embedder is None else self._embedder.space.dimension

    async def embed(self, texts: Sequence[str], principal: Principal) -> EmbeddedTexts:
        """Return the vectors of the texts. It takes one request, and the tokens and their cost, from the limits.

        Raises: AccessFailure; RequestFailure (REQUEST_RATE_LIMITED); OrchestrationFailure
        (ORCHESTRATION_BUDGET_EXCEEDED); InferenceFailure; StorageFailure.
        """
        embedder = self._embedder
        if embedder is None:
            raise RuntimeError("no engine embeds; callers ask for its name first")
        name = embedder.space.embedder
        require(principal.permissions, Permission.SEND_MESSAGES, "embed texts")
        if not self._environment.catalogue.is_permitted(name, principal.permissions):
            raise denied(f"model:{name}", "use this model")
        quota = self._environment.quotas.of(principal.tenant, principal.key_id, principal.limits)
        slot = RunSlot() if quota is None else await quota.admit_to_queue()
        try:
            return await embedder.charge_and_embed(texts, principal)
        except Failure:
            slot.refund()
            raise
        except EngineError as error:
            raise _failure(name, error) from error
        except EmbeddingError as error:
            raise InferenceFailure(Code.INFERENCE_MALFORMED_RESPONSE, str(error), {"provider": name}) from error


def _failure(provider: str, error: EngineError) -> Failure:
    """Return the failure of an engine with the code of its reason."""
    rule = RULES[error.reason]
    details = {"provider": provider, "reason": error.reason.value}
    raised = failure(rule.code, error.message, details=details, condition=rule.condition)
    raised.retry_after = error.retry_after
    return raised
