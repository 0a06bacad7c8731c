"""Chat completions, the API of OpenAI that most clients speak."""

from typing import Final

from portico.entrypoints.http.client_apis.api import ClientApi
from portico.entrypoints.http.client_apis.chat_completions.answer import encode, encode_quote
from portico.entrypoints.http.client_apis.chat_completions.frames import ChatFrames
from portico.entrypoints.http.client_apis.chat_completions.request import ChatShown, decode
from portico.entrypoints.http.client_apis.errors import ErrorShape

CHAT_COMPLETIONS: Final = ClientApi[ChatShown](ErrorShape.OPENAI, decode, encode, encode_quote, ChatFrames)
