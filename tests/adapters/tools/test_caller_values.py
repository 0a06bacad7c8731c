"""Facts of a caller in URLs, headers and variables: filled once, and never out of their place."""

import pytest

from portico.adapters.tools.caller_values import HeaderTemplates, caller_environment
from portico.adapters.tools.http_api.url_template import UrlTemplate
from portico.adapters.tools.programs.command_template import CommandTemplate
from portico.domain.ids import ChannelName, KeyId, RequestId, TenantId, UserId
from portico.domain.tools import Caller
from portico.ports.tool import ToolError

PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
URL = "http://api.test/{caller.user}/notes/{text}?team={metadata.team}"


def caller(user: str = "ann", **metadata: str) -> Caller:
    names = (TenantId("acme"), UserId(user), None, RequestId("r-1"), KeyId("abcdefgh"), "support", ChannelName("slack"))
    return Caller(*names, metadata=metadata)


def test_a_url_has_the_facts_of_the_caller_and_an_argument_is_no_template() -> None:
    filled = UrlTemplate(URL, PARAMETERS).fill({"text": "{caller.user}"}, caller(team="a/b}&x={c"))
    assert filled == "http://api.test/ann/notes/%7Bcaller.user%7D?team=a%2Fb%7D%26x%3D%7Bc"


@pytest.mark.parametrize(("user", "team"), [(".", "a"), ("..", "a"), ("ann", ""), ("ann", "..")])
def test_a_fact_that_is_no_segment_is_an_error_of_the_tool(user: str, team: str) -> None:
    with pytest.raises(ToolError, match="must not be absent"):
        UrlTemplate(URL, PARAMETERS).fill({"text": "x"}, caller(user, team=team))
    with pytest.raises(ToolError, match="must not be absent"):
        UrlTemplate(URL, PARAMETERS).fill({"text": "x"})


def test_absent_facts_are_empty_in_a_header_and_line_breaks_are_refused() -> None:
    headers = HeaderTemplates({"X-User": "{caller.user}", "X-Team": "t {metadata.team}"})
    assert headers.fill(caller(team="{caller.tenant}")) == {"X-User": "ann", "X-Team": "t {caller.tenant}"}
    assert headers.fill(None) == {"X-User": "", "X-Team": "t"}
    for bad in ("a\r\nX-Admin: 1", "a\nb", "a\0b", "\x7f"):
        with pytest.raises(ToolError, match="X-Team cannot be sent"):
            headers.fill(caller(team=bad))


def test_a_place_that_names_no_fact_is_refused() -> None:
    with pytest.raises(ValueError, match=r"caller\.password"):
        HeaderTemplates({"X-User": "{caller.password}"})
    with pytest.raises(ValueError, match=r"caller\.metadata"):
        UrlTemplate("http://api.test/{caller.metadata}", PARAMETERS)
    with pytest.raises(ValueError, match="path and its query only"):
        UrlTemplate("http://{caller.tenant}.test/", PARAMETERS)


def test_a_command_has_the_facts_of_the_caller_each_as_part_of_one_word() -> None:
    command = ["notes", "--user={caller.user}", "{metadata.team}", "{{caller.user}}", "--", "{text}", "{caller.key_id}"]
    words = CommandTemplate(command, PARAMETERS).fill({"text": "{caller.user}"}, caller(team="a b; {text}"))
    assert words == ["--user=ann", "a b; {text}", "{caller.user}", "--", "{caller.user}", "abcdefgh"]


@pytest.mark.parametrize("team", ["", "--all", "a\0b"])
def test_a_fact_that_is_absent_or_would_be_an_option_is_an_error_of_the_tool(team: str) -> None:
    with pytest.raises(ToolError, match=r"metadata\.team is needed in the command"):
        CommandTemplate(["notes", "{metadata.team}"], PARAMETERS).fill({}, caller(team=team))


def test_the_program_itself_is_no_place_and_a_place_names_a_fact() -> None:
    for command in (["{caller.user}"], ["notes", "{caller.password}"]):
        with pytest.raises(ValueError, match="place"):
            CommandTemplate(command, PARAMETERS)


def test_a_program_learns_for_whom_it_acts() -> None:
    assert caller_environment(caller()) == {
        "PORTICO_TENANT": "acme",
        "PORTICO_USER": "ann",
        "PORTICO_KEY_ID": "abcdefgh",
        "PORTICO_AGENT": "support",
        "PORTICO_REQUEST_ID": "r-1",
        "PORTICO_CHANNEL": "slack",
    }
