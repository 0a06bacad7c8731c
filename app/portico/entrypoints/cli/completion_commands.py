"""Commands that print the script of a shell: `portico completion bash`, `zsh` and `fish`.

They are commands without parameters, since Typer loads pydantic for a parameter.
"""

import sys

from typer._completion_shared import get_completion_script


def bash() -> None:
    """Print the script for bash; ~/.bashrc runs it with: eval "$(portico completion bash)"."""
    _write("bash")


def zsh() -> None:
    """Print the script for zsh; ~/.zshrc runs it with: eval "$(portico completion zsh)"."""
    _write("zsh")


def fish() -> None:
    """Print the script for fish; config.fish runs it with: portico completion fish | source."""
    _write("fish")


def _write(shell: str) -> None:
    script = get_completion_script(prog_name="portico", complete_var="_PORTICO_COMPLETE", shell=shell)
    sys.stdout.write(script + "\n")
