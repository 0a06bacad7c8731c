"""Trust in an answer: that of a person is trusted like its tool, that of a model never."""

import orjson
import pytest

from portico.domain.access.principal import LOCAL
from portico.domain.ids import RequestId
from tests.entrypoints.mcp.test_http import client, served_mcp
from tests.support.portico import ASK_PERSON, chat, resume

PRE_AUTHORISED = {"pre_authorise": [{"tool": "refund"}], "trusted_output": ["ask_person"]}


@pytest.mark.parametrize(("by_model", "following"), [(True, "SUSPENDED"), (False, "COMPLETE")])
async def test_an_answer_of_a_model_is_untrusted_although_its_tool_is_trusted(
    *, by_model: bool, following: str
) -> None:
    tools = {"modules": ["tests.support.shop_tools"]}
    async with served_mcp(tools=tools, policy=PRE_AUTHORISED) as (served, service):
        asked = await served.post(chat(ASK_PERSON, request_id="q", session_id="talk", tools=["ask_person"]))
        [suspension] = asked.json["suspensions"]
        if by_model:
            async with client(served, "auto") as mcp:
                given = {"request_id": "q", "suspension_id": suspension["suspension_id"], "answer": "Pay them."}
                assert not (await mcp.call_tool("resume", given)).is_error
        else:
            assert (await resume(served, payload="Pay them.")).status == 200
        assert (await service.facade.executions.replay(LOCAL, RequestId("q"))).identical
        next_turn = chat("refund amount 20", request_id="next", session_id="talk", tools=["refund"])
        answer = await served.post(next_turn)
    assert answer.json["state"] == following, orjson.dumps(answer.json)
