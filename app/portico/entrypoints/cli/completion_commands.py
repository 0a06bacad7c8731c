"""Commands that print the script of a shell: `portico completion bash`, `zsh` and `fish`.

`portico` calls them before it makes the other commands: Typer loads pydantic for each command that it runs, and a shell
runs these whenever it starts.
"""

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from typer._completion_shared import COMPLETION_SCRIPT_BASH, COMPLETION_SCRIPT_FISH, COMPLETION_SCRIPT_ZSH

_VARIABLES: Final = MappingProxyType(
    {
        "complete_func": "_portico_completion",
        "prog_name": "portico",
        "autocomplete_var": "_PORTICO_COMPLETE",
    }
)


def bash() -> None:
    """Print the script for bash; ~/.bashrc runs it with: eval "$(portico completion bash)"."""
    _write(COMPLETION_SCRIPT_BASH)


def zsh() -> None:
    """Print the script for zsh; ~/.zshrc runs it with: eval "$(portico completion zsh)"."""
    _write(COMPLETION_SCRIPT_ZSH)


def fish() -> None:
    """Print the script for fish; config.fish runs it with: portico completion fish | source."""
    _write(COMPLETION_SCRIPT_FISH)


def _write(script: str) -> None:
    sys.stdout.write((script % _VARIABLES).strip() + "\n")


SHELLS: Final[Mapping[str, Callable[[], None]]] = MappingProxyType({"bash": bash, "zsh": zsh, "fish": fish})
