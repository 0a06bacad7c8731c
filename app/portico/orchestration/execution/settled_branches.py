"""Branches of which some may wait while the others have ended, and that continue later."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from portico.domain.failures import Failure
from portico.domain.journal.step_key import StepKey
from portico.domain.value import value
from portico.orchestration.execution.branch_settings import BranchSettings
from portico.orchestration.execution.branches import Waiting
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.progress import Conversation

T = TypeVar("T")


@value
class Branch(Generic[T]):
    """A branch to run: its settings, the conversation that it continues, and its key if it waited before."""

    run: Callable[[RunContext], Awaitable[T]]
    settings: BranchSettings
    conversation: Conversation
    key: StepKey | None = None


@value
class SettledBranch(Generic[T]):
    """The end of a branch: its result, its failure, or that it waits; its key, and its conversation by then."""

    end: T | Failure | Waiting
    key: StepKey
    conversation: Conversation


async def settle(context: RunContext, branches: Sequence[Branch[T]]) -> list[SettledBranch[T]]:
    """Run the branches concurrently and return their ends in order: results, failures, and those that wait.

    A branch that waited before continues by its key and its conversation, from its first recorded step.
    """
    position = context._position
    key = context._next_key()
    children = [
        position.child(key.child(index) if branch.key is None else branch.key, branch.conversation)
        for index, branch in enumerate(branches)
    ]
    contexts = [RunContext(child, branch.settings) for branch, child in zip(branches, children, strict=True)]
    position.is_closed = True
    ends = await position.execution.branches.settle(
        key, [partial(branch.run, each) for branch, each in zip(branches, contexts, strict=True)]
    )
    position.is_closed = False
    position.move_to(key, max(child.now for child in children))
    return [SettledBranch(end, child.branch, child.conversation) for end, child in zip(ends, children, strict=True)]
