"""An agent of Pydantic AI with the tools of the MCP server at argv[1], whose model calls one tool after the other."""

import asyncio
import json
import sys
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

CALLS = (("execute", "Hello"), ("agent__roller", sys.argv[2]))
shown: dict[str, Any] = {"results": [], "asked": []}


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    shown["tools"] = sorted(tool.name for tool in info.function_tools)
    results: list[Any] = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    shown["results"] += [result["state"] for result in results]
    if len(shown["results"]) == len(CALLS):
        return ModelResponse([TextPart("Done.")])
    name, message = CALLS[len(shown["results"])]
    return ModelResponse([ToolCallPart(name, {"message": message})])


async def approve(message: str, *_: Any) -> dict[str, str]:
    shown["asked"].append("roll_dice" in message)
    return {"decision": "approve"}


agent = Agent(FunctionModel(model), toolsets=[MCPToolset(sys.argv[1], elicitation_handler=approve)])
shown["output"] = asyncio.run(agent.run("Roll dice.")).output
sys.stdout.write(json.dumps(shown))
