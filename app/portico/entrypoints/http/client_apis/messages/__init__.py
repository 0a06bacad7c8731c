"""Messages, the API of Anthropic's clients."""

from typing import Final

from portico.entrypoints.http.client_apis.api import ClientApi, Shown
from portico.entrypoints.http.client_apis.errors import ErrorShape
from portico.entrypoints.http.client_apis.messages.answer import encode, encode_quote
from portico.entrypoints.http.client_apis.messages.frames import MessageFrames
from portico.entrypoints.http.client_apis.messages.request import decode

MESSAGES: Final = ClientApi[Shown](ErrorShape.ANTHROPIC, decode, encode, encode_quote, MessageFrames)
