"""Use of a grant: a person's earlier leave in place of an answer about a call."""

from portico.domain.contract.messages import ToolCall
from portico.domain.fingerprints import digest
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import CallDecided, GrantUsed, Outcome
from portico.domain.journal.step_key import StepKey
from portico.orchestration.execution.branch_settings import BranchSettings
from portico.orchestration.execution.effect import Effect
from portico.orchestration.execution.environment import Environment
from portico.ports.grants import GrantedCall


class GrantUse(Effect):
    """The effect of looking for a grant that covers a call, and of counting its use."""

    def __init__(
        self, header: ExecutionHeader, call: ToolCall, key: StepKey, settings: BranchSettings, decision: CallDecided
    ) -> None:
        self.key = key
        self.fingerprint = digest("grant", key, call.name, call.arguments)
        self.correlation = settings.correlation
        self._call = GrantedCall(
            header.tenant,
            header.user,
            header.execution_id,
            header.request.session_id,
            settings.caller.agent,
            call.name,
            decision.tool_digest,
            digest(call.arguments),
        )

    async def run(self, environment: Environment) -> Outcome:
        """Use the oldest grant that covers the call."""
        found = None
        if environment.grants is not None:
            found = await environment.grants.use(self._call, environment.clock.now())
        return GrantUsed() if found is None else GrantUsed(found.grant_id, found.granted_by, found.granted_at)
