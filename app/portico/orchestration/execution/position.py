"""Positions: the place of a branch in the record, from which its next step gets its key."""

from portico.domain.journal.fork import Fork
from portico.domain.journal.step_key import ROOT, StepKey
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.progress import Conversation, RunProgress, StepProgress
from portico.orchestration.execution.tool_calls.agent_call import AgentCall


class PatternMisuse(RuntimeError):  # noqa: N818 - a misuse of the interface, named as such
    """A pattern broke a rule of the context; the message is the rule."""


class Position:
    """Position of a branch: its steps are numbered below `branch`, its events hang behind step `anchor`.

    `now` is the time of the last recorded step, in Unix seconds. `overrides` are the forks whose steps were reached.
    """

    def __init__(
        self, execution: Execution, progress: RunProgress, *, branch: StepKey, anchor: str, now: float
    ) -> None:
        self.execution = execution
        self.progress = progress
        self.branch = branch
        self.is_root = branch == ROOT
        """True for the outermost pattern, which moves the lifecycle."""
        self.anchor = anchor
        self.now = now
        self.is_closed = False
        self.conversation = progress.conversation
        self.step: StepProgress | None = None
        self.overrides: tuple[Fork, ...] = ()
        self._may_fork = self.is_root and execution.header.fork is not None
        self._ordinal = 0

    def next_key(self) -> StepKey:
        """Return the key of the next step. Raises: PatternMisuse while the branches of this one run."""
        if self.is_closed:
            raise PatternMisuse("use the context you were given; the parent's is closed meanwhile")
        if self._may_fork:
            self.apply_forks()
        key = StepKey(f"{self.branch}/{self._ordinal}" if self.branch else str(self._ordinal))
        self._ordinal += 1
        return key

    def move_to(self, anchor: str, at: float) -> None:
        """Let events hang behind that step, which was recorded at that time."""
        self.anchor, self.now = anchor, max(self.now, at)

    def child(self, branch: StepKey, conversation: Conversation | None = None) -> "Position":
        """Return the position at the start of a branch."""
        child = Position(self.execution, self.progress, branch=branch, anchor=branch, now=self.now)
        child.conversation = self.conversation.copy() if conversation is None else conversation
        child.step = self.step
        return child

    def agent(self, call: AgentCall) -> "Position":
        """Return the position at the start of the agent of a call, behind the step that recorded its settings."""
        agent = self.child(call.key, Conversation())
        agent.anchor, agent.now, agent.step = call.start.key, max(self.now, call.started_at), None
        agent._ordinal = 1
        return agent

    def apply_forks(self) -> None:
        """Apply the overrides of every fork whose first own step is reached; its messages are asked next."""
        fork = self.execution.header.fork
        if fork is None or not self._may_fork:
            return
        for each in fork.chain[len(self.overrides) :]:
            if self._ordinal < each.from_step:
                return
            self.overrides += (each,)
            self.conversation.inherited = len(self.conversation.transcript)
            self.conversation.pending = (*self.conversation.pending, *each.messages)
