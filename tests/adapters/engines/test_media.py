"""Documents and audio: what is taken, what each wire is sent, and the note to an engine that lacks them."""

from base64 import b64encode
from typing import Any

import pytest
from anthropic.types import DocumentBlockParam
from google.genai import types as gemini_types
from openai.types.chat import ChatCompletionContentPartParam
from openai.types.responses import ResponseInputFileParam
from pydantic import TypeAdapter, ValidationError

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.capabilities.context.redaction import Redactor
from portico.capabilities.models.engine_downgrade import downgrade, unsupported_parts
from portico.capabilities.models.tokens import UNCORRECTED
from portico.domain.context.guards import texts_of_messages
from portico.domain.contract.messages import Message, conversation_errors, is_untrusted_text
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import EngineCall
from portico.ports.model import EngineCapabilities, EngineProfile


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


TEXT = "# Grüße, sk-proj-abcdefghijklmnopqrstuvwx"
BYTES = encoded(b"%PDF-1.7\n" + b"x" * 90_000)
PDF = {
    "type": "document",
    "media_type": "application/pdf",
    "data": encoded(b"%PDF-1.7\n" + b"x" * 90_000),
    "name": "a.pdf",
}
NOTE = {"type": "document", "media_type": "text/markdown", "data": encoded(TEXT.encode())}
WAV = {"type": "audio", "media_type": "audio/wav", "data": encoded(b"RIFF\0\0\0\0WAVEfmt ")}
MP3 = {"type": "audio", "media_type": "audio/mpeg", "data": encoded(b"ID3\4" + b"\0" * 997)}
ABLE = EngineCapabilities(documents=True, audio=True)


def user(*parts: dict[str, Any]) -> Message:
    return Message.model_validate({"role": "user", "content": [{"type": "text", "text": "What is this?"}, *parts]})


def profile(able: EngineCapabilities = ABLE) -> EngineProfile:
    return EngineProfile("primary", "some-model", "any", 128_000, 4_096, frozenset(), capabilities=able)


def call(*parts: dict[str, Any]) -> EngineCall:
    return EngineCall([user(*parts)], (), ExecutionHints())


def sent(dialect: Dialect, *parts: dict[str, Any]) -> dict[str, Any]:
    request = dialect.encode(call(*parts), profile(), stream=False)
    assert request.withheld == ()
    return request.body


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (PDF | {"data": encoded(b"GIF89a")}, "data"),
        (PDF | {"data": "%%%"}, "data"),
        (PDF | {"media_type": "application/msword"}, "media_type"),
        (NOTE | {"data": encoded(b"\xff\xfe")}, "data"),
        (NOTE | {"data": encoded(b"a\0b")}, "data"),
        (WAV | {"data": MP3["data"]}, "data"),
        (MP3 | {"data": WAV["data"]}, "data"),
        (MP3 | {"url": "https://example.com/a.mp3"}, "data"),
    ],
)
def test_bytes_of_another_type_are_refused_by_their_field(part: dict[str, Any], field: str):
    with pytest.raises(ValidationError) as caught:
        user(part)
    assert [each["loc"][-1] for each in caught.value.errors() if "str" not in each["loc"]] == [field]


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_only_a_user_sends_documents_and_audio(role: str):
    message = Message.model_validate({"role": role, "content": [PDF]})
    assert [where for where, _ in conversation_errors([message])] == ["messages.0.content"]
    assert conversation_errors([user(PDF, NOTE, WAV)]) == []


@pytest.mark.parametrize("part", [PDF, NOTE, WAV])
def test_a_document_and_audio_are_untrusted_text(part: dict[str, Any]):
    assert is_untrusted_text([user(part)])
    assert not is_untrusted_text([user()])


def test_chat_completions_are_sent_files_and_audio():
    _, file, note, audio = sent(ChatCompletionsDialect(), PDF, NOTE, WAV)["messages"][0]["content"]
    adapter: TypeAdapter[Any] = TypeAdapter(ChatCompletionContentPartParam)
    assert [adapter.validate_python(part) for part in (file, note, audio)]
    assert file["file"] == {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF['data']}"}
    assert note == {"type": "text", "text": TEXT}
    assert audio["input_audio"] == {"data": WAV["data"], "format": "wav"}


def test_responses_are_sent_files_and_audio():
    _, file, note, audio = sent(ResponsesDialect(), PDF, NOTE, MP3)["input"][0]["content"]
    assert TypeAdapter(ResponseInputFileParam).validate_python(file) == file
    assert (file["type"], file["filename"], note["type"]) == ("input_file", "a.pdf", "input_text")
    assert audio == {"type": "input_audio", "input_audio": {"data": MP3["data"], "format": "mp3"}}


def test_anthropic_is_sent_documents_and_names_audio():
    _, pdf, note = sent(AnthropicDialect(), PDF, NOTE)["messages"][0]["content"]
    adapter: TypeAdapter[Any] = TypeAdapter(DocumentBlockParam)
    assert [adapter.validate_python(block) for block in (pdf, note)]
    assert (pdf["source"]["type"], pdf["title"], note["source"]["data"]) == (
        "base64",
        "a.pdf",
        TEXT,
    )
    assert AnthropicDialect().encode(call(WAV), profile(), stream=False).withheld == ("messages.audio",)


def test_gemini_is_sent_all_of_them_inline():
    _, *parts = sent(GeminiDialect(), PDF, NOTE, MP3)["contents"][0]["parts"]
    assert [gemini_types.Part.model_validate(part) for part in parts]
    types = [part["inlineData"]["mimeType"] for part in parts]
    assert types == ["application/pdf", "text/plain", "audio/mpeg"]


def test_an_engine_that_lacks_them_gets_a_note_and_texts_as_text():
    asked, plain = call(PDF, NOTE, WAV), profile(EngineCapabilities())
    (message,) = downgrade(asked, plain).messages
    assert message.text.split("\n", 1)[1] == (
        f"[a document that this model cannot read: a.pdf]\n{TEXT}\n[audio that this model cannot hear]"
    )
    assert unsupported_parts(asked, plain) == ("messages.documents", "messages.audio")
    assert unsupported_parts(call(NOTE), plain) == ()
    assert downgrade(asked, profile()) is asked
    assert unsupported_parts(asked, profile()) == ()


def test_estimates_follow_the_size():
    bare = UNCORRECTED.message(user())
    assert UNCORRECTED.message(user(PDF)) - bare == pytest.approx(3_000, abs=2)
    assert UNCORRECTED.message(user(PDF | {"data": encoded(b"%PDF-")})) - bare == 1_500
    assert UNCORRECTED.message(user(MP3)) - bare == pytest.approx(2, abs=1)


def test_guards_and_redaction_read_text_documents():
    assert TEXT in [text.text for text in texts_of_messages([user(NOTE)])]
    (redacted,) = Redactor().messages([user(NOTE, PDF)])
    note, pdf = redacted.documents
    assert "sk-proj" not in (note.plain_text or "")
    assert pdf.data == PDF["data"]
