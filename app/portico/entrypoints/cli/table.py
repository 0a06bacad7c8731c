"""Table of the commands: the function of each, in the module that is loaded when the command is called.

The help is the first line of the function's docstring, which a test compares, so that a list of the commands is
printed without loading any of them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from portico.domain.value import value

_HERE: Final = __name__.rpartition(".")[0]
_COMMANDS: Final = f"{_HERE}.commands"
_KEYS: Final = f"{_HERE}.key_commands"
_TOOLS: Final = f"{_HERE}.tool_commands"
_APPROVALS: Final = f"{_HERE}.clients.approval_commands"
_SCHEDULES: Final = f"{_HERE}.clients.schedule_commands"
_CREDENTIALS: Final = f"{_HERE}.clients.credential_commands"
_RUNS: Final = f"{_HERE}.clients.run_commands"
_WEBHOOKS: Final = f"{_HERE}.clients.webhook_commands"
_SECRETS: Final = f"{_HERE}.secret_commands"
_MCP: Final = f"{_HERE}.mcp_commands"
_PROJECT: Final = f"{_HERE}.project_commands"
_COMPLETION: Final = f"{_HERE}.completion_commands"


@value
class Command:
    """A command: the module and the name of its function, and its help in one line."""

    module: str
    function: str
    help: str


@value
class CommandGroup:
    """Commands that share their first word."""

    help: str
    commands: "Mapping[str, Command]"


CommandTable: TypeAlias = Mapping[str, Command | CommandGroup]


def _group(text: str, **commands: Command) -> CommandGroup:
    return CommandGroup(text, MappingProxyType(commands))


COMMANDS: Final[CommandTable] = MappingProxyType(
    {
        "init": Command(_PROJECT, "init", "Write portico.toml, tools.py and .gitignore into a directory."),
        "serve": Command(_COMMANDS, "serve", "Serve HTTP until SIGTERM or Ctrl-C."),
        "check": Command(_COMMANDS, "check", "Try everything that is configured, one line each."),
        "health": Command(_COMMANDS, "health", "Ask the server whether it lives."),
        "execute": Command(_COMMANDS, "execute", "Run one request, in this process or on a server."),
        "mcp": Command(
            _MCP, "serve_mcp", "Serve MCP on standard input and output, in this process or in front of a server."
        ),
        "runs": _group(
            "List, show, follow, cancel and resume the executions of a server.",
            list=Command(_RUNS, "list_runs", "List executions, newest first."),
            show=Command(_RUNS, "show", "Show an execution: its answer on standard output, its facts beside it."),
            tail=Command(_RUNS, "tail", "Follow the events of an execution until it ends or waits for an answer."),
            cancel=Command(_RUNS, "cancel", "Cancel executions."),
            resume=Command(_RUNS, "resume", "Answer an open suspension, and follow the execution."),
        ),
        "replay": Command(
            _COMMANDS,
            "replay",
            "Replay stored executions offline, also beside a running server, and compare every step with the record.",
        ),
        "flow": _group(
            "Run a flow, print its graph, or check suspended flows before a deploy.",
            run=Command(_COMMANDS, "run_flow", "Run a flow, in this process or on a server."),
            graph=Command(_COMMANDS, "print_flow", "Print the graph of a flow as a Mermaid flowchart."),
            check=Command(
                _COMMANDS,
                "check_flows",
                "Say which suspended flows would not resume with today's graphs, and why.",
            ),
        ),
        "prompts": Command(
            _COMMANDS,
            "prompts",
            "List the service's own prompts, or print the text of one; prompts.directory replaces texts.",
        ),
        "keys": _group(
            "Create, list and revoke API keys, also beside a running server.",
            create=Command(_KEYS, "create", "Create a key, and print it once on standard output."),
            list=Command(_KEYS, "list_keys", "List the keys, oldest first; their secrets are stored nowhere."),
            revoke=Command(_KEYS, "revoke", "Revoke a key; every server honours it within 5 seconds."),
            generate=Command(_KEYS, "generate", "Print a new key without storing it, for auth.bootstrap_key_file."),
        ),
        "tools": _group(
            "List the configured tools, or call one, without a server.",
            list=Command(
                _TOOLS,
                "list_tools",
                "List every configured tool with its source, its safety, and the reason if it cannot run now.",
            ),
            call=Command(_TOOLS, "call", "Call a tool once and print its result."),
        ),
        "approvals": _group(
            "List the tool calls of a server that wait for a person, and decide.",
            list=Command(_APPROVALS, "list_calls", "List the calls that wait for a person."),
            approve=Command(
                _APPROVALS,
                "approve",
                "Let calls run, on request with other arguments; let later calls of the tool run, too.",
            ),
            deny=Command(_APPROVALS, "deny", "Refuse calls; the executions go on without them."),
            grants=Command(_APPROVALS, "grants", "List the grants by which calls run unasked."),
            revoke=Command(_APPROVALS, "revoke", "Revoke grants: later calls wait for a person again."),
            settle=Command(_APPROVALS, "settle", "Say what has become of calls whose outcome is not known."),
        ),
        "schedules": _group(
            "List, store, run and delete the schedules of a server.",
            list=Command(
                _SCHEDULES,
                "list_schedules",
                "List schedules, by name, with their next time and what became of the last one.",
            ),
            put=Command(_SCHEDULES, "put", "Store a schedule, and print its next time."),
            delete=Command(_SCHEDULES, "delete", "Delete a schedule; its executions stay."),
            run=Command(_SCHEDULES, "run", "Run a schedule now, and print the id of the execution."),
            runs=Command(_SCHEDULES, "list_times", "List what became of the times of a schedule, the latest first."),
        ),
        "webhooks": _group(
            "List, make and test the webhooks of a server, and retry deliveries.",
            list=Command(
                _WEBHOOKS, "list_endpoints", "List the endpoints, those of the server's configuration included."
            ),
            put=Command(_WEBHOOKS, "put", "Make or change an endpoint; the secret of a new one is printed once."),
            delete=Command(_WEBHOOKS, "delete", "Delete an endpoint with its deliveries."),
            rotate=Command(
                _WEBHOOKS, "rotate", "Print a new secret of an endpoint; for 24 hours the earlier one signs, too."
            ),
            test=Command(_WEBHOOKS, "send_test", "Send an endpoint a test, and print the id of the delivery."),
            deliveries=Command(_WEBHOOKS, "deliveries", "List the newest deliveries, at most 1,000."),
            retry=Command(_WEBHOOKS, "retry", "Send deliveries again, dead or not."),
        ),
        "credentials": _group(
            "List, set and delete the credentials that tools of a server use for you.",
            list=Command(_CREDENTIALS, "list_credentials", "List the credentials of one's tools, without values."),
            set=Command(
                _CREDENTIALS,
                "set_value",
                "Set the value of a credential, which is read from standard input without the line break at its end.",
            ),
            delete=Command(_CREDENTIALS, "delete", "Delete the value of a credential."),
        ),
        "secrets": _group(
            "Make keys that seal stored secrets.",
            generate=Command(
                _SECRETS, "generate", "Print a new key for a file that secrets.key_file names, one a line."
            ),
        ),
        "backup": Command(
            _COMMANDS, "backup", "Copy the SQLite database into a new file, also beside a running server."
        ),
        "restore": Command(
            _COMMANDS, "restore", "Put a backup in the place of the SQLite database, while no server runs on it."
        ),
        "audit": _group(
            "Verify the audit log.",
            verify=Command(
                _COMMANDS,
                "verify_audit",
                "Print the number of lines, or name the first that was changed, removed or moved.",
            ),
        ),
        "explain": Command(_COMMANDS, "explain", "Print what each inference of an execution has read, in tokens."),
        "openapi": Command(
            _COMMANDS, "openapi", "Print the description of the HTTP API as JSON, with the default limits."
        ),
        "completion": _group(
            "Print the script that completes commands in a shell.",
            bash=Command(
                _COMPLETION,
                "bash",
                'Print the script for bash; ~/.bashrc runs it with: eval "$(portico completion bash)".',
            ),
            zsh=Command(
                _COMPLETION, "zsh", 'Print the script for zsh; ~/.zshrc runs it with: eval "$(portico completion zsh)".'
            ),
            fish=Command(
                _COMPLETION,
                "fish",
                "Print the script for fish; config.fish runs it with: portico completion fish | source.",
            ),
        ),
    }
)
