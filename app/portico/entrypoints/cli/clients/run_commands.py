"""Commands for the executions of a server: `portico runs list`, `show`, `tail`, `cancel` and `resume`.

Each command imports what it needs itself.
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from portico.domain.lifecycle import Mode, State
from portico.entrypoints.cli.clients.approval_options import (
    ArgumentsOption,
    GrantMatchOption,
    GrantOption,
    GrantSecondsOption,
    approval_payload,
)
from portico.entrypoints.cli.exit_codes import failures_as_exits
from portico.entrypoints.cli.options import DEFAULT_SERVER, JsonLinesOption, KeyFileOption, QuietOption, UrlOption

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the request.")]


def _states(names: list[str] | None) -> list[str] | None:
    unknown = [name for name in names or () if name.upper() not in set(State)]
    if unknown:
        raise typer.BadParameter(f"must be one of {', '.join(State)}")
    return None if names is None else [name.upper() for name in names]


def _mode(mode: str | None) -> str | None:
    if mode is not None and mode not in set(Mode):
        raise typer.BadParameter(f"must be one of {', '.join(Mode)}")
    return mode


def list_runs(  # noqa: PLR0913 - Typer reads one parameter per option
    *,
    state: Annotated[
        list[str] | None, typer.Option(callback=_states, help="Only executions in this state; repeat for several.")
    ] = None,
    mode: Annotated[str | None, typer.Option(callback=_mode, help="Only executions of this mode.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only executions of this agent.")] = None,
    session: Annotated[str | None, typer.Option(help="Only executions of this session.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only those created at this time, as 2026-11-22T18:30:00Z, or later."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of executions.")] = 20,
    as_json: JsonLinesOption = False,
    quiet: QuietOption = False,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """List executions, newest first."""
    from portico.entrypoints.cli.clients.runs import write_executions

    chosen = {"state": ",".join(state or ()), "mode": mode, "agent": agent, "session_id": session, "since": since}
    with failures_as_exits():
        query = {name: text for name, text in chosen.items() if text}
        write_executions(url, key_file, query, limit, as_json=as_json)


def show(
    request_id: IdArgument,
    *,
    trace: Annotated[bool, typer.Option("--trace", help="Show its attempts and its tool calls.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Show its recorded steps.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the server answers as JSON.")] = False,
    quiet: QuietOption = False,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Show an execution: its answer on standard output, its facts beside it."""
    if trace and steps:
        raise typer.BadParameter("stands alone", param_hint="--trace or --steps")
    from portico.entrypoints.cli.clients.runs import write_execution, write_steps, write_trace

    with failures_as_exits():
        if trace:
            write_trace(url, key_file, request_id, as_json=as_json)
        elif steps:
            write_steps(url, key_file, request_id, as_json=as_json)
        else:
            write_execution(url, key_file, request_id, as_json=as_json, quiet=quiet)


def tail(
    request_id: IdArgument,
    *,
    after: Annotated[int, typer.Option(min=0, help="Number of the last event that is not shown.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one event as JSON per line.")] = False,
    quiet: QuietOption = False,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Follow the events of an execution until it ends or waits for an answer.

    Events go to standard error, the answer to standard output. A stream that breaks is read on. Ctrl-C ends only the
    view.
    """
    from portico.entrypoints.cli.clients.remote_execution import tail as follow
    from portico.entrypoints.cli.output import OutputOptions, exit_unless_complete

    with failures_as_exits():
        response = follow(url, key_file, request_id, after, OutputOptions(stream=True, as_json=as_json, quiet=quiet))
    if response is not None:
        exit_unless_complete(response)


def cancel(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of the requests.")],
    *,
    as_json: JsonLinesOption = False,
    quiet: QuietOption = False,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Cancel executions."""
    from portico.entrypoints.cli.clients.runs import cancel_executions

    with failures_as_exits():
        cancel_executions(url, key_file, ids, as_json=as_json)


def resume(  # noqa: PLR0913 - Typer reads one parameter per option
    request_id: IdArgument,
    *,
    suspension: Annotated[str | None, typer.Option(help="Id of the suspension, if several are open.")] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Let the call run.")] = False,
    arguments: ArgumentsOption = None,
    grant: GrantOption = None,
    seconds: GrantSecondsOption = 3_600,
    match: GrantMatchOption = "tool",
    deny: Annotated[bool, typer.Option("--deny", help="Refuse the call.")] = False,
    reason: Annotated[
        str | None, typer.Option(help="Reason of --deny, which the model sees, or comment of --approve.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Answer to a question.")] = None,
    answer: Annotated[str | None, typer.Option(metavar="JSON", help="The answer, in JSON.")] = None,
    happened: Annotated[
        str | None, typer.Option(metavar="RESULT", help="The call with unknown outcome has run, with this result.")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="The call has not run, and may now.")] = False,
    give_up: Annotated[bool, typer.Option("--give-up", help="What the call has done stays unknown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one event as JSON per line.")] = False,
    quiet: QuietOption = False,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Answer an open suspension, and follow the execution.

    Exactly one answer is given. Another user's execution is not followed.
    """
    from portico.domain.contract.response import SuspensionKind
    from portico.entrypoints.cli.clients.remote_execution import Answer
    from portico.entrypoints.cli.clients.remote_execution import resume as answer_suspension
    from portico.entrypoints.cli.output import OutputOptions, exit_unless_complete

    call, unknown = [SuspensionKind.APPROVAL], [SuspensionKind.UNKNOWN_OUTCOME]
    texts = [SuspensionKind.QUESTION, SuspensionKind.FLOW]
    choices: dict[str, tuple[bool, list[SuspensionKind], Callable[[], Any]]] = {
        "--approve": (approve, call, lambda: approval_payload(reason, arguments, grant, seconds, match)),
        "--deny": (
            deny,
            [*call, SuspensionKind.AUTHORIZATION],
            lambda: {"decision": "deny", **({} if reason is None else {"reason": reason})},
        ),
        "--text": (text is not None, texts, lambda: text),
        "--answer": (answer is not None, [*SuspensionKind], lambda: _json(answer or "")),
        "--happened": (happened is not None, unknown, lambda: {"decision": "happened", "result": happened}),
        "--run": (run, unknown, lambda: {"decision": "run"}),
        "--give-up": (give_up, unknown, lambda: {"decision": "give_up"}),
    }
    given = [(kinds, payload) for is_given, kinds, payload in choices.values() if is_given]
    if len(given) != 1:
        raise typer.BadParameter("exactly one is needed", param_hint=", ".join(choices))
    if reason is not None and not (deny or approve):
        raise typer.BadParameter("goes with --deny or --approve", param_hint="--reason")
    if not approve and (arguments is not None or grant is not None):
        raise typer.BadParameter("go with --approve", param_hint="--arguments, --grant")
    [(kinds, payload)] = given
    output = OutputOptions(stream=True, as_json=as_json, quiet=quiet)
    found = Answer(payload(), kinds, suspension)
    with failures_as_exits():
        response = answer_suspension(url, key_file, request_id, found, output)
    if response is not None:
        exit_unless_complete(response)


def _json(text: str) -> object:
    from portico.domain.strict_json import StrictJsonError, loads

    try:
        value: object = loads(text.encode(errors="replace"))
    except StrictJsonError as error:
        raise typer.BadParameter(f"is not acceptable JSON: {error.reason}", param_hint="--answer") from None
    return value
