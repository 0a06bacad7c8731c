"""Quote: upper bounds of a request before it runs."""

from pydantic import BaseModel, ConfigDict, Field

from portico.domain.contract.response import Cost


class Quote(BaseModel):
    """Upper bounds of a request, guaranteed by the state machines and the limits; not an estimate."""

    model_config = ConfigDict(extra="forbid")

    inferences: int = Field(ge=0, description="Attempts on providers.")
    tool_calls: int = Field(ge=0, description="Attempts at tool calls.")
    transitions: int = Field(ge=0, description="State changes of its lifecycle and of the fallback machines.")
    tokens: int = Field(ge=0, description="Tokens over all attempts, by the engines' context windows.")
    seconds: float = Field(ge=0, description="Seconds of running time.")
    cost: Cost | None = Field(None, description="Cost; null if an engine that may be used has no price.")
