"""Canaries: addresses in what tools, documents and earlier turns say, and a module that repeats them.

The model of these tests repeats none of them. Its own answers have an address of their own.
"""

from pydantic import BaseModel

from portico import SideEffects, ToolError, step, tool
from portico.orchestration.flow import AgentConfig, Context, FlowGraph, flow

OF_TOOL = "tool-leak@canary.example"
OF_DOCUMENT = "document-leak@canary.example"
OF_TURN = "turn-leak@canary.example"
MARK = "leak@canary"
OWN = "own@model.example"


@tool(side_effects=SideEffects.READ, idempotent=True)
def look_up(name: str) -> str:
    """Look up the address of a customer."""
    return f"The address of {name} is {OF_TOOL}."


@tool(side_effects=SideEffects.READ, idempotent=True)
def look_up_unknown(name: str) -> str:
    """Look up the address of an unknown customer."""
    raise ToolError(f"unknown, but there is {OF_TOOL}")


@step(side_effects=SideEffects.READ, idempotent=True)
def find_contact(name: str) -> dict[str, str]:
    """Find the contact of a customer."""
    return {"contact": OF_TOOL}


@step(side_effects=SideEffects.NONE, idempotent=True)
async def confirm_contact(contact: str) -> str:
    """Ask a person about a contact."""
    raise ToolError.suspend({"question": f"Is {contact} right, or {OF_TOOL}?"})


class Name(BaseModel):
    """A customer."""

    name: str


class Contact(BaseModel):
    """A way to reach a customer."""

    contact: str


class Letter(BaseModel):
    """A letter to a customer."""

    letter: str


async def find(name: Name, context: Context) -> Contact:
    return Contact(contact=OF_TOOL)


@flow("contact")
def contact() -> FlowGraph[Name, Contact]:
    """Return a flow whose output is what a function found."""
    return FlowGraph.builder(Name, Contact).work(find).build()


@flow("letter")
def letter() -> FlowGraph[Name, Letter]:
    """Return a flow in which an agent reads what a function found."""
    config = AgentConfig("Write a letter.", "default")
    return FlowGraph.builder(Name, Letter).work(find).agent(Contact, Letter, config).build()
