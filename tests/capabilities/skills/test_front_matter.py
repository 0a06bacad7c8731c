"""Front matter: the keys of a skill, and files that are refused for what they would do to a parser or a reader."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.skills.front_matter import MAX_FRONT_MATTER_BYTES, read_skill
from portico.domain.context.skill import Skill, SkillError
from portico.domain.contract.messages import Origin, origin_of

LEAST = "---\ndescription: Be short\n---\nBe short."


def with_line(line: str) -> str:
    return f"---\ndescription: d\n{line}\n---\ntext"


def refusal(content: str) -> str:
    with pytest.raises(SkillError) as refused:
        read_skill(content, "tone")
    return str(refused.value)


def test_a_description_and_a_text_are_enough() -> None:
    skill = read_skill(LEAST, "tone")
    assert skill == Skill("tone", "Be short", "Be short.")
    assert (skill.message.role, skill.message.text) == ("system", "# tone\n\nBe short.")
    assert origin_of(skill.message) is Origin.SKILL


def test_every_key_is_read_and_those_of_the_open_layout_mean_nothing() -> None:
    content = """\
---\r
name: refunds
description: "How to refund: the rules"
triggers: [refund, money back, /order\\s+#\\d+/, no]
value: 2.5
requires:
  - tone
tools: [calculator, "agent:clerk"]
tokens: 120
always: true
license: Apache-2.0
compatibility: any
metadata: {author: me, version: "1.0"}
allowed-tools: Bash(git:*)
---

First line.

Last line.
"""
    assert read_skill(content, "x") == Skill(
        name="refunds",
        description="How to refund: the rules",
        text="First line.\n\nLast line.",
        triggers=("refund", "money back", r"/order\s+#\d+/", "no"),
        value=2.5,
        requires=("tone",),
        tools=("calculator", "agent__clerk"),
        tokens=120,
        always=True,
    )


@pytest.mark.parametrize(
    ("line", "attributes"),
    [
        ("triggers: word", {"triggers": ("word",)}),
        ("triggers:", {"triggers": ()}),
        ("triggers: [a, a]", {"triggers": ("a",)}),
        ("name: 1.0", {"name": "1.0"}),
        ("value: 0", {"value": 0.0}),
        ("tools: []", {"tools": ()}),
    ],
)
def test_a_scalar_is_a_text_until_its_key_gives_it_a_type(line: str, attributes: dict[str, Any]) -> None:
    skill = read_skill(with_line(line), "tone")
    assert {name: getattr(skill, name) for name in attributes} == attributes


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("Be short.", "must begin with front matter, whose first line is ---"),
        ("", "must begin with front matter, whose first line is ---"),
        ("---\ndescription: d\n", "has front matter without an end, which is a line ---"),
        ("---\ndescription: d\n---\n \n", "has no text behind its front matter"),
        ("---\nname: tone\n---\ntext", "description must have 1 to 1024 characters"),
        (f"---\ndescription: {'d' * 1025}\n---\ntext", "description must have 1 to 1024 characters"),
        ("---\n- description\n---\ntext", "must have front matter of keys and values"),
        ("---\n---\ntext", "must have front matter of keys and values"),
        ("---\ndescription: [\n---\ntext", "has front matter that is no YAML, line 2"),
        ("---\ndescription: \x07\n---\ntext", "has front matter that is no YAML"),
        (with_line("tone: x"), "'tone' is no key of a skill"),
        (with_line("<<: {name: x}"), "'<<' is no key of a skill"),
        (with_line("description: e"), "has the key 'description' twice in its front matter"),
        (with_line("name: ../../etc/passwd"), "name must have 1 to 64 letters, digits, dots, dashes and underscores"),
        (with_line(f"name: {'n' * 65}"), "name must have 1 to 64 letters, digits, dots, dashes and underscores"),
        (with_line("name: [a]"), "name must be a text"),
        (with_line("value: -1"), "value must be a number of at least 0"),
        (with_line("value: .inf"), "value must be a number of at least 0"),
        (with_line("value: nan"), "value must be a number of at least 0"),
        (with_line("value: 1e400"), "value must be a number of at least 0"),
        (with_line("tokens: 1.5"), "tokens must be a whole number of at most 1000000"),
        (with_line("tokens: 9999999999999999"), "tokens must be a whole number of at most 1000000"),
        (with_line("always: yes"), "always must be true or false"),
        (with_line("requires: tone"), "must not require itself"),
        (with_line("requires: [a b]"), "requires must be names, and 'a b' is none"),
        (with_line("tools: [rm -rf]"), "tools must be names, and 'rm -rf' is none"),
        (with_line("triggers: {a: b}"), "triggers must be a list of texts"),
        (with_line("triggers: [[a]]"), "triggers must be a list of texts"),
        (with_line("triggers: ['']"), "triggers must be a list of texts"),
        (with_line(f"triggers: [{', '.join(f't{n}' for n in range(65))}]"), "triggers must be at most 64"),
        (with_line(f"triggers: [{'t' * 257}]"), "triggers must have at most 256 characters each"),
    ],
)
def test_a_file_that_is_no_skill_is_refused_with_the_reason(content: str, reason: str) -> None:
    assert refusal(content) == reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("metadata: &a [x]\nlicense: *a", "must not have anchors and aliases in its front matter"),
        ("license: *a", "must not have anchors and aliases in its front matter"),
        ("license: !!python/object/apply:os.system [id]", "must not have tags and directives in its front matter"),
        ("license: !x y", "must not have tags and directives in its front matter"),
        ("value: !!float 2", "must not have tags and directives in its front matter"),
        (f"metadata: {'[' * 4000}{']' * 4000}", "has front matter that is nested more than 8 deep"),
        (f"metadata: {'{a: ' * 900}x{'}' * 900}", "has front matter that is nested more than 8 deep"),
        ("? [a]\n: b", "must have texts as keys of its front matter"),
        (f"license: {'x' * MAX_FRONT_MATTER_BYTES}", f"has front matter of more than {MAX_FRONT_MATTER_BYTES} bytes"),
    ],
)
def test_front_matter_that_would_grow_or_construct_something_is_refused(line: str, reason: str) -> None:
    assert refusal(with_line(line)) == reason


def test_directives_and_further_documents_are_refused() -> None:
    assert refusal("---\n%YAML 1.1\n--- \ndescription: d\n---\ntext") == "has front matter that is no YAML, line 2"
    assert refusal(with_line("...\n%TAG ! tag:x,2000:\na: b")).startswith("has front matter that is no YAML")
    assert refusal(with_line("--- {name: again}")) == "must have one document of front matter"


@given(st.text(max_size=300))
def test_any_text_is_a_skill_or_refused(text: str) -> None:
    for content in (text, f"---\n{text}\n---\ntext", with_line(text)):
        with suppress(SkillError):
            assert read_skill(content, "tone").text
