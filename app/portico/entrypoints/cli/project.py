"""Files of a new directory: a configuration, a module with one tool, and what version control leaves out."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from portico.ports.engine_schemes import SCHEMES

_CONFIGURATION: Final = """\
# Configuration of Portico. Every key stands in docs/configuration.md; `portico check` tries what stands here.
{engines}
[tools]
modules = ["tools"]              # tools.py beside this file

[storage]
url = "sqlite:///portico.db"     # postgresql://USER@HOST/NAME for several replicas

# [server]
# host = "127.0.0.1"             # other addresses need [auth]
# port = 8080

# [auth]
# mode = "keys"                  # `portico keys create --tenant TENANT --user USER` makes a key

# [agents.support]               # request it with {{"agent": "support"}}
# system_prompt = "Count with count_words."
# tools = ["count_words"]
"""
_REHEARSAL: Final = """
# No key of a provider was found: the built-in rehearsal engine answers, which is no model. For a model, replace it:
# model = "openai://gpt-4o-mini", api_key_env = "OPENAI_API_KEY"
[engines.rehearsal]
model = "rehearsal://"
"""
_ENGINE: Final = """
[engines.{name}]
model = "{name}://{model}"
api_key_env = "{variable}"
"""
_ROUTE: Final = """
[routes]
default = {names}
"""
_TOOLS: Final = '''\
"""Tools that models may call. The types and the docstring describe a tool to the model."""

from portico import SideEffects, tool


@tool(side_effects=SideEffects.NONE, idempotent=True)
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())
'''
_IGNORED: Final = """\
portico.db*
.env
__pycache__/
"""
FILES: Final = ("portico.toml", "tools.py", ".gitignore")


def existing_file(directory: Path) -> Path | None:
    """Return the first file that is there already, None if all of them can be written."""
    return next((path for path in (directory / name for name in FILES) if path.exists()), None)


def write_project(directory: Path, schemes: Sequence[str]) -> Iterator[Path]:
    """Write the files, with an engine of each of these schemes, and yield their paths.

    Raises: OSError; FileExistsError instead of replacing a file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in _texts(schemes).items():
        path = directory / name
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        yield path


def _texts(schemes: Sequence[str]) -> Mapping[str, str]:
    engines = "".join(
        _ENGINE.format(name=name, model=SCHEMES[name].default_model, variable=SCHEMES[name].api_key_env)
        for name in schemes
    )
    if len(schemes) > 1:
        engines += _ROUTE.format(names="[" + ", ".join(f'"{name}"' for name in schemes) + "]")
    texts = (_CONFIGURATION.format(engines=engines or _REHEARSAL), _TOOLS, _IGNORED)
    return MappingProxyType(dict(zip(FILES, texts, strict=True)))
