"""Directory of skills: files `FILE.md`, and folders `NAME/SKILL.md` of the open Agent Skills layout.

Other files and folders, those whose name begins with a dot, and a README.md are ignored. A symbolic link in the place
of a skill is refused, so that no skill is read from outside the directory.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from portico.capabilities.skills.front_matter import read_skill
from portico.domain.context.skill import Skill, SkillError
from portico.domain.failures import Code, ConfigurationFailure

MAX_SKILL_BYTES: Final = 64 * 1024
MAX_SKILLS: Final = 1_000
_SUFFIX: Final = ".md"
_FOLDER_FILE: Final = "SKILL.md"
_IGNORED: Final = "readme.md"


def read_skills(directory: Path) -> list[Skill]:
    """Return the skills of the directory.

    Raises: ConfigurationFailure (CONFIG_INVALID) with the name of the file that cannot be used.
    """
    skills: list[Skill] = []
    for name, file in _files(directory):
        if len(skills) == MAX_SKILLS:
            raise unusable_skills(f"there are more than {MAX_SKILLS} skills")
        try:
            skill = read_skill(_read(file), name)
        except SkillError as fault:
            raise unusable_skills(f"{_shown(file, directory)}: {fault}") from fault
        if file.name == _FOLDER_FILE and skill.name != name:
            raise unusable_skills(f"{_shown(file, directory)}: name must be {name}, that of its folder")
        skills.append(skill)
    return skills


def unusable_skills(reason: str) -> ConfigurationFailure:
    """Return the failure for skills that cannot be used."""
    return ConfigurationFailure(Code.CONFIG_INVALID, f"skills.directory: {reason}")


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield the default name and the path of each skill, in the order of their names."""
    try:
        with os.scandir(directory) as found:
            entries = sorted((each for each in found if not each.name.startswith(".")), key=lambda each: each.name)
    except OSError as fault:
        raise unusable_skills(f"{directory} cannot be read: {fault.strerror}") from fault
    for entry in entries:
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if os.path.lexists(path / _FOLDER_FILE):
                yield entry.name, path / _FOLDER_FILE
        elif entry.is_symlink() and (path.suffix == _SUFFIX or path.is_dir()):
            raise unusable_skills(f"{entry.name!a} is a symbolic link")
        elif path.suffix == _SUFFIX and entry.name.lower() != _IGNORED:
            yield path.stem, path


def _read(file: Path) -> str:
    """Return the text of a regular file. Raises: SkillError."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        is_link = file.is_symlink()
        raise SkillError("is a symbolic link" if is_link else f"cannot be read: {fault.strerror}") from fault
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SkillError("is no regular file")
        content = opened.read(MAX_SKILL_BYTES + 1)
    if len(content) > MAX_SKILL_BYTES:
        raise SkillError(f"is larger than {MAX_SKILL_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise SkillError("is not UTF-8") from fault


def _shown(file: Path, directory: Path) -> str:
    return ascii(str(file.relative_to(directory)))[1:-1]
