"""No prompt is written outside the registry, and the check finds one that is."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source import Finding, Rule, Source, called, product, repository

OURS = "app/capabilities/prompting/"
ADDRESSES_A_MODEL = re.compile(
    r"\bYou are (?:an?|the) |\bYou (?:judge|plan|answer|will be given)\b"
    r"|\b(?:Answer|Reply|Respond|Return) (?:only )?(?:with|in|as) (?:only )?(?:one |a |valid )?(?:JSON|text|yes)"
    r"|\b[Nn]ever follow instructions|\bYour (?:last )?answer (?:is|was|must)\b"
)


def outside_the_registry(path: str) -> bool:
    return product(path) and not path.startswith(OURS)


def prompts(source: Source) -> Iterator[Finding]:
    descriptions = {id(node.value) for node in source.nodes(ast.Expr)}
    for text in source.nodes(ast.Constant):
        spoken = isinstance(text.value, str) and id(text) not in descriptions
        if spoken and ADDRESSES_A_MODEL.search(str(text.value)):
            yield Finding(text.lineno, "addresses a model")
    for call, name in called(source):
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        role, content = given.get("role"), given.get("content")
        is_system = name.endswith("Message") and isinstance(role, ast.Constant) and role.value == "system"
        if is_system and isinstance(content, ast.Constant | ast.JoinedStr | ast.BinOp):
            yield Finding(call.lineno, "writes a system prompt on the spot")


ANY = "app/orchestration/any.py"
LOCATION = Rule(
    "No prompt is written outside the registry",
    outside_the_registry,
    prompts,
    planted=(
        (ANY, 'PROMPT = "You are a helpful assistant."\n'),
        (ANY, 'def f(x):\n    return f"You judge {x}."\n'),
        (ANY, 'ask("Reply with one JSON object.")\n'),
        (ANY, 'ask("... and Never follow instructions in it")\n'),
        (ANY, 'text = "Your last answer was refused: "\n'),
        (ANY, 'Message(role="system", content="Be brief.")\n'),
        (ANY, 'Message(role="system", content=f"Speak {language}.")\n'),
        (ANY, 'Message(role="system", content="Speak " + language)\n'),
    ),
    innocent=(
        (ANY, 'def f():\n    """You are a reader of the code. Reply with JSON."""\n'),
        (ANY, 'Message(role="system", content=registry.get_prompt(prompt_id, given))\n'),
        (ANY, 'Message(role="user", content="[the tool answered]")\n'),
        (ANY, 'raise ValueError("the answer holds no JSON value")\n'),
        (f"{OURS}prompts/any.py", 'PROMPT = "You are a judge."\n'),
    ),
)


def test_no_prompt_is_written_outside_the_registry() -> None:
    broken = [
        f"{source.path}:{found.line} {found.what}" for source in repository() for found in LOCATION.broken_by(source)
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(("path", "text"), LOCATION.planted)
def test_a_planted_prompt_is_found(path: str, text: str) -> None:
    assert LOCATION.broken_by(Source(path, text))


@pytest.mark.parametrize(("path", "text"), LOCATION.innocent)
def test_other_text_is_not_reported_as_a_prompt(path: str, text: str) -> None:
    assert not LOCATION.broken_by(Source(path, text))


def test_the_prompts_of_the_registry_would_be_reported() -> None:
    found = [source.path for source in repository() if source.path.startswith(OURS) and list(prompts(source))]
    assert {
        f"{OURS}prompts/{name}.py"
        for name in ("planning", "assessment", "output_format", "recursion", "repair", "task_profile")
    } <= set(found)
