"""What an execution acts through."""

from dataclasses import dataclass

from app.capabilities.failover import ProviderHealth
from app.capabilities.inference import Catalogue
from app.capabilities.tools.executor import ToolExecutor
from app.capabilities.tools.registry import ToolRegistry
from app.keeping import Conversations
from app.ports import Clock, Entropy, Journal, TokenCounter, Turns, Watchers, Workers


@dataclass(frozen=True, slots=True)
class World:
    """Everything that is outside an execution and that it may use."""

    journal: Journal
    clock: Clock
    entropy: Entropy
    watchers: Watchers
    catalogue: Catalogue
    registry: ToolRegistry
    tools: ToolExecutor
    health: ProviderHealth
    counter: TokenCounter
    turns: Turns
    workers: Workers
    conversations: Conversations
