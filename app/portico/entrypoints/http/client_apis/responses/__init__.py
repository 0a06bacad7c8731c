"""The Responses API of OpenAI, as its clients speak it."""

from functools import partial

from portico.entrypoints.http.client_apis.api import ClientApi
from portico.entrypoints.http.client_apis.errors import ErrorShape
from portico.entrypoints.http.client_apis.responses.answer import Now, ResponsesShown, encode, encode_quote
from portico.entrypoints.http.client_apis.responses.frames import ResponsesFrames
from portico.entrypoints.http.client_apis.responses.request import decode


def responses_api(now: Now) -> ClientApi[ResponsesShown]:
    """Return the API; `now` tells when an answer ends."""
    encoders = partial(encode, now), partial(encode_quote, now), partial(ResponsesFrames, now)
    return ClientApi(ErrorShape.OPENAI, decode, *encoders)
