"""Options of the commands that approve a call, and the answer that they amount to."""

from typing import Annotated, Any, Literal

import typer

from portico.domain.strict_json import StrictJsonError, loads

ArgumentsOption = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="Arguments with which the call runs instead of its own.", show_default=False),
]
GrantOption = Annotated[
    Literal["execution", "session"] | None,
    typer.Option(help="Let later calls of the tool there run unasked, too.", show_default=False),
]
GrantSecondsOption = Annotated[int, typer.Option(min=1, max=86_400, help="Seconds for which --grant holds.")]
GrantMatchOption = Annotated[
    Literal["tool", "arguments"], typer.Option(help="arguments: --grant is for calls with the same arguments only.")
]


def approval_payload(
    reason: str | None, arguments: str | None, grant: str | None, seconds: int, match: str
) -> dict[str, Any]:
    """Return the answer that approves a call. Raises: typer.BadParameter."""
    payload: dict[str, Any] = {"decision": "approve"}
    if reason is not None:
        payload["reason"] = reason
    if arguments is not None:
        payload["arguments"] = _json_object(arguments)
    if grant is not None:
        payload["grant"] = {"for": grant, "seconds": seconds, "match": match}
    return payload


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = loads(text.encode())
    except StrictJsonError as error:
        raise typer.BadParameter(str(error), param_hint="--arguments") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("must be a JSON object", param_hint="--arguments")
    return found
