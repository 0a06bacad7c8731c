"""No prompt is written outside the registry, and the check finds one that is."""

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from tests.architecture.source import Finding, Rule, Source, called, product, repository

OURS = "app/portico/capabilities/prompting/"
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
        if name.endswith("PromptDefinition"):
            yield Finding(call.lineno, "defines a prompt")
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        role, content = given.get("role"), given.get("content")
        if name.endswith("Message") and is_written(role, content):
            yield Finding(call.lineno, "writes a message to a model on the spot")
    for node in source.nodes(ast.Dict):
        members = {key.value: value for key, value in zip(node.keys, node.values, strict=True) if is_text(key)}
        if is_written(members.get("role"), members.get("content")):
            yield Finding(node.lineno, "writes a message to a model on the spot")


def is_text(node: ast.expr | None) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_written(role: ast.expr | None, content: ast.expr | None) -> bool:
    """Return whether this is a message with words of its own; a user's may be a note in brackets."""
    if not is_text(role) or role.value not in {"system", "user", "developer"}:
        return False
    first = content.values[0] if isinstance(content, ast.JoinedStr) and content.values else content
    is_note = is_text(first) and str(first.value).startswith("[") and role.value == "user"
    return isinstance(content, ast.Constant | ast.JoinedStr | ast.BinOp) and not is_note


ANY = "app/portico/orchestration/any.py"
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
        (ANY, 'Message(role="user", content=f"Translate {text}")\n'),
        (ANY, 'messages = [{"role": "system", "content": "Be brief."}]\n'),
        (ANY, 'definition = PromptDefinition(prompt_id, "{text}", Input, None)\n'),
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
