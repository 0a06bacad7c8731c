"""Directory of skills: both layouts, and files that would be read from elsewhere or without end."""

import os
from pathlib import Path

import pytest

from portico.adapters.skill_directory import MAX_SKILL_BYTES, MAX_SKILLS, read_skills
from portico.domain.failures import Code, ConfigurationFailure

SKILL = "---\ndescription: d\n---\ntext"


def write(file: Path, content: str = SKILL) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def refusal(directory: Path) -> str:
    with pytest.raises(ConfigurationFailure) as refused:
        read_skills(directory)
    assert refused.value.code is Code.CONFIG_INVALID
    return refused.value.message


def test_both_layouts_are_read_in_the_order_of_their_names_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "tone.md")
    write(tmp_path / "other.md", "---\nname: named\ndescription: d\n---\ntext")
    write(tmp_path / "cards" / "SKILL.md", "\ufeff---\r\nname: cards\r\ndescription: d\r\n---\r\nRead rules.md.\r\n")
    write(tmp_path / "cards" / "rules.md", "no skill")
    write(tmp_path / "notes" / "other.md", "no skill")
    write(tmp_path / "README.md", "no skill")
    write(tmp_path / ".hidden.md", "no skill")
    write(tmp_path / "script.py", "no skill")
    assert [(skill.name, skill.text) for skill in read_skills(tmp_path)] == [
        *(("cards", "Read rules.md."), ("named", "text"), ("tone", "text"))
    ]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("tone.md", "text", "tone.md: must begin with front matter, whose first line is ---"),
        (
            "cards/SKILL.md",
            "---\nname: dice\ndescription: d\n---\nx",
            "cards/SKILL.md: name must be cards, that of its",
        ),
        ("a b.md", SKILL, "a b.md: name must have 1 to 64 letters"),
        ("\x1b[31m.md", "text", "\\x1b[31m.md: must begin with front matter"),
        ("tone.md", SKILL + "x" * MAX_SKILL_BYTES, f"tone.md: is larger than {MAX_SKILL_BYTES} bytes"),
    ],
)
def test_an_unusable_file_is_refused_with_its_name(tmp_path: Path, name: str, content: str, reason: str) -> None:
    write(tmp_path / name, content)
    assert refusal(tmp_path).startswith(f"skills.directory: {reason}")


def test_a_file_of_the_largest_size_is_read_and_one_that_is_no_text_is_not(tmp_path: Path) -> None:
    file = write(tmp_path / "tone.md", SKILL + "x" * (MAX_SKILL_BYTES - len(SKILL)))
    assert len(read_skills(tmp_path)) == 1
    file.write_bytes(SKILL.encode() + b"\xff")
    assert refusal(tmp_path) == "skills.directory: tone.md: is not UTF-8"


def test_no_symbolic_link_is_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / "secret.md")
    links = tmp_path / "links"
    links.mkdir()
    (links / "tone.md").symlink_to(outside)
    assert refusal(links) == "skills.directory: 'tone.md' is a symbolic link"
    (links / "tone.md").unlink()
    (links / "cards").symlink_to(outside.parent, target_is_directory=True)
    assert refusal(links) == "skills.directory: 'cards' is a symbolic link"
    (links / "cards").unlink()
    (links / "cards").mkdir()
    (links / "cards" / "SKILL.md").symlink_to(outside)
    assert refusal(links) == "skills.directory: cards/SKILL.md: is a symbolic link"


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tone.md")
    assert refusal(tmp_path) == "skills.directory: tone.md: is no regular file"


def test_a_directory_that_is_missing_or_too_full_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "missing").endswith("cannot be read: No such file or directory")
    for number in range(MAX_SKILLS + 1):
        write(tmp_path / f"s{number}.md")
    assert refusal(tmp_path) == f"skills.directory: there are more than {MAX_SKILLS} skills"
