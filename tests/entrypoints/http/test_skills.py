"""Skills of a service: which ones a model reads, which tools they leave, and what is said about the others."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from portico.bootstrap.service import open_service
from portico.domain.failures import ConfigurationFailure
from portico.settings import Settings
from tests.support.http_server import RunningServer
from tests.support.portico import EVENTS, chat, events, portico

TONE = "---\ndescription: How to sound\ntriggers: [polite]\n---\nBe polite."
REFUNDS = """\
---
description: How to refund
triggers: [refund, /order \\d+/]
value: 2
requires: [tone]
tools: [calculate]
tokens: 60
---
Refund only what was paid."""
BASICS = "---\ndescription: What always holds\nalways: true\n---\nPrices are in euros."
UNUSABLE = "---\ndescription: Cards\ntriggers: [refund]\ntools: [draw_card]\n---\nDraw a card."
ALL = {"tone": TONE, "refunds": REFUNDS, "basics": BASICS, "cards": UNUSABLE}


def skills_in(folder: Path, files: Mapping[str, str] = ALL, **table: Any) -> dict[str, Any]:
    """Write the files and return the table of the configuration."""
    for name, content in files.items():
        (folder / f"{name}.md").write_text(content)
    return {"directory": str(folder), **table}


async def asked(
    served: RunningServer, request_id: str, text: str, **changes: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the response and the trace's context."""
    answer = await served.post(chat(text, request_id=request_id, **changes), path="/v1/execute")
    assert answer.status == 200, answer.body
    stored = await served.get(f"/v1/executions/{request_id}/events", EVENTS)
    return answer.json, next((each for each in events(stored) if each["type"] == "context.assembled"), {})


def names(context: dict[str, Any]) -> list[str]:
    return [each["name"] for each in context.get("skills", [])]


async def test_a_word_of_the_message_calls_for_skills_and_those_for_the_tools_that_are_offered(tmp_path: Path) -> None:
    async with portico(skills=skills_in(tmp_path)) as (served, _):
        body, context = await asked(served, "q", "A refund, please", context={"skills": "auto"})
        replayed = await served.post(b"", path="/v1/executions/q/replay")
    assert names(context) == ["tone", "refunds", "basics"]
    assert {"name": "cards", "reason": "tool draw_card"} in context["excluded"]
    assert context["terms"]["skills"] == sum(each["tokens"] for each in context["skills"]) > 0
    left_out = body["metadata"]["left_out"]
    assert "context.skills.cards" in left_out
    assert "tools.ask_person" in left_out
    assert "tools.calculate" not in left_out
    assert replayed.json["identical"] is True


async def test_without_a_request_only_the_skills_of_the_agent_are_read_and_always_acts_within_auto(
    tmp_path: Path,
) -> None:
    agents = {
        "clerk": {"description": "A clerk", "skills": ["refunds", "tone"], "tools": ["calculate", "ask_person"]},
        "guest": {"description": "A guest"},
    }
    async with portico(skills=skills_in(tmp_path), agents=agents) as (served, _):
        found = {
            "none": await asked(served, "none", "A refund"),
            "all": await asked(served, "all", "A refund", context={"skills": []}),
            "clerk": await asked(served, "clerk", "Hello", agent="clerk"),
            "narrowed": await asked(served, "narrowed", "Hello", agent="clerk", context={"skills": ["tone"]}),
            "without": await asked(served, "without", "Hello", agent="clerk", context={"skills": []}),
            "auto": await asked(served, "auto", "Hello, polite one", agent="clerk", context={"skills": "auto"}),
            "guest": await asked(served, "guest", "A refund", agent="guest", context={"skills": "auto"}),
            "basics": await asked(served, "basics", "Hello", context={"skills": "auto"}),
        }
        refused = [
            await served.post(chat("Hello", context={"skills": given}, **changes), path="/v1/execute")
            for given, changes in (
                (["tone", "tune"], {}),
                (["basics"], {"agent": "clerk"}),
                (["tone"], {"agent": "guest"}),
                (["tone"], {"mode": "plan"}),
            )
        ]
    assert {name: names(context) for name, (_, context) in found.items()} == {
        "none": [],
        "all": [],
        "clerk": ["tone", "refunds"],
        "narrowed": ["tone"],
        "without": [],
        "auto": ["tone"],
        "guest": [],
        "basics": ["basics"],
    }
    assert "tools.ask_person" in found["clerk"][0]["metadata"]["left_out"]
    assert [(each.status, each.json["detail"]) for each in refused] == [
        (422, "context.skills.1: must be a name from GET /v1/skills"),
        (422, "context.skills.0: must be a skill of the agent"),
        (422, "context.skills.0: must be a skill of the agent"),
        (422, "context.skills: has no effect in mode plan"),
    ]


async def test_skills_that_do_not_fit_are_named_and_a_service_without_skills_refuses_them(tmp_path: Path) -> None:
    async with portico(skills=skills_in(tmp_path, budget_tokens=30)) as (served, _):
        body, context = await asked(served, "q", "polite refund", context={"skills": ["refunds", "tone"]})
    assert (names(context), context["excluded"]) == (["tone"], [{"name": "refunds", "reason": "budget"}])
    assert body["metadata"]["left_out"] == ["context.skills.refunds"]
    async with portico() as (served, _):
        refused = await served.post(chat("Hello", context={"skills": "auto"}), path="/v1/execute")
        shown = await served.get("/v1/skills")
    assert (refused.status, refused.json["detail"]) == (422, "context.skills: needs skills, and this service has none")
    assert shown.json == {"data": []}


async def test_a_demanded_tool_that_no_skill_requires_is_not_demanded(tmp_path: Path) -> None:
    demanded = {"tool_choice": {"name": "ask_person"}}
    async with portico(skills=skills_in(tmp_path)) as (served, _):
        body, _ = await asked(served, "q", "A refund", context={"skills": ["refunds"]}, hints=demanded)
        replayed = await served.post(b"", path="/v1/executions/q/replay")
    assert body["state"] == "COMPLETE"
    assert {"hints.tool_choice", "tools.ask_person"} <= set(body["metadata"]["left_out"])
    assert replayed.json["identical"] is True


async def test_the_skills_are_listed_by_name_without_their_texts(tmp_path: Path) -> None:
    async with portico(skills=skills_in(tmp_path)) as (served, _):
        listed = (await served.get("/v1/skills")).json["data"]
    assert [each["name"] for each in listed] == ["basics", "cards", "refunds", "tone"]
    assert listed[2] == {
        "name": "refunds",
        "description": "How to refund",
        "triggers": ["refund", "/order \\d+/"],
        "always": False,
        "value": 2.0,
        "requires": ["tone"],
        "tools": ["calculate"],
        "tokens": 60,
    }
    assert "Refund only" not in str(listed)


async def test_a_reload_puts_other_skills_in_force_and_an_unusable_one_leaves_them(tmp_path: Path) -> None:
    agents = {"clerk": {"description": "A clerk", "skills": ["tone"]}}
    failures: list[str] = []
    async with portico(skills=skills_in(tmp_path), agents=agents) as (served, service):
        assert service.skill_reload is not None
        reload = replace(service.skill_reload, on_failure=failures.append)
        await asked(served, "before", "A refund", context={"skills": ["refunds"]})
        skills_in(tmp_path, {"extra": TONE})
        (tmp_path / "refunds.md").unlink()
        await reload.run()
        listed = [[each["name"] for each in (await served.get("/v1/skills")).json["data"]]]
        for content in ("no skill", TONE.replace("---\nBe", "requires: extra\n---\nBe")):
            skills_in(tmp_path, {"tone": content, "extra": TONE.replace("---\nBe", "requires: tone\n---\nBe")})
            await reload.run()
        (tmp_path / "tone.md").unlink()
        skills_in(tmp_path, {"extra": TONE})
        await reload.run()
        listed.append([each["name"] for each in (await served.get("/v1/skills")).json["data"]])
        replayed = await served.post(b"", path="/v1/executions/before/replay")
    assert listed == [["basics", "cards", "extra", "tone"]] * 2
    assert replayed.json["identical"] is True
    assert [each.partition(" ")[2].partition(";")[0] for each in failures] == [
        "tone.md: must begin with front matter, whose first line is ---",
        "extra: must not require itself: extra -> tone -> extra",
        "must name a skill of skills.directory",
    ]


@pytest.mark.parametrize(
    ("files", "agents", "reason"),
    [
        ({"tone": "x"}, {}, r"skills\.directory: tone\.md: must begin with front matter"),
        ({"a": TONE.replace("\n---", "\nrequires: a\n---")}, {}, r"a\.md: must not require itself"),
        (ALL, {"a": {"description": "A", "skills": ["tine"]}}, r"agents\.a\.skills\.0: .* did you mean tone\?"),
    ],
)
async def test_unusable_skills_stop_the_start(
    files: dict[str, str], agents: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    settings = Settings.model_validate(
        {"storage": {"url": "sqlite://"}, "skills": skills_in(tmp_path, files), "agents": agents}
    )
    with pytest.raises(ConfigurationFailure, match=reason):
        async with open_service(settings):
            pass
