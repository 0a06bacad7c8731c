"""Random programs of `run_code` that are killed after every recorded step: they make the same calls and act once."""

from collections.abc import Mapping
from typing import Any

import pytest

from portico.adapters.system import SystemClock
from portico.domain.contract.response import SystemResponse
from portico.domain.lifecycle import State
from portico.ports.journal import ExecutionHistory
from tests.support.code import DONE, Ledger, code_harness, in_real_time, random_program, rounds_of, runs, sent_text
from tests.support.harness import Harness, chat_request, open_suspensions, replay_offline, watch_commits
from tests.support.recovery import TERMINAL_TYPES

START = "1/0/0/0"
"""Key of the start of the code; its clock stands at that time."""
PROGRAMS = [
    pytest.param(seed, marks=pytest.mark.seeded if seed % 100 == 0 else pytest.mark.torture) for seed in range(200)
]
RESTING = TERMINAL_TYPES | {"execution.suspended"}


def made(ledger: Ledger, *replies: Mapping[str, Any]) -> Harness:
    return code_harness(SystemClock(), *replies, tools=ledger.tools())


async def to_the_end(ledger: Ledger, record: ExecutionHistory) -> tuple[SystemResponse, ExecutionHistory]:
    """Continue a record; an unsafe call whose outcome is not known has happened."""
    response, after = await made(ledger, DONE).recover(record)
    while response.state is State.SUSPENDED:
        call = open_suspensions(after)[0]
        assert call.kind == "unknown_outcome"
        number = call.value["arguments"]["n"]
        response, after = await made(ledger, DONE).resume(after, {"decision": "happened", "result": sent_text(number)})
    return response, after


async def check_program(seed: int) -> int:
    """Kill the program after each commit and compare; return the number of the kills."""
    whole = Ledger()
    here = watch_commits(made(whole, runs(random_program(seed)), DONE), whole.sent)
    response, record = await here.run(chat_request("go"))
    assert response.state is State.COMPLETE
    assert replay_offline(record) == len(record.steps)
    assert len(set(whole.sent)) == len(whole.sent)
    kills = 0
    commits = here.journal.commits
    for number, (prefix, _) in enumerate(commits[:-1]):
        if START not in prefix.steps or prefix.events[-1].event.type in RESTING:
            continue
        kills += 1
        done = Ledger(whole.sent[: commits[number + 1][1]])
        resumed, after = await to_the_end(done, prefix)
        assert rounds_of(after) == rounds_of(record)
        assert [call.result for call in resumed.tool_calls_made] == [call.result for call in response.tool_calls_made]
        assert sorted(done.sent) == sorted(whole.sent)
        assert replay_offline(after) == len(after.steps)
    return kills


@pytest.mark.parametrize("seed", PROGRAMS)
async def test_random_code_that_is_killed_after_a_step_goes_on_as_if_it_had_not_been(seed: int) -> None:
    with in_real_time():
        assert await check_program(seed) > 0
