"""Documents and audio as both of OpenAI's APIs take them."""

from portico.domain.contract.messages import AudioPart, DocumentPart

DEFAULT_NAME = "document.pdf"
"""The name of a document without one: the API needs it."""


def file_data(document: DocumentPart) -> dict[str, str]:
    """Return the members of a file."""
    return {
        "filename": document.name or DEFAULT_NAME,
        "file_data": f"data:{document.media_type};base64,{document.data}",
    }


def audio_data(audio: AudioPart) -> dict[str, str]:
    """Return the members of an audio."""
    return {"data": audio.data, "format": "wav" if audio.media_type == "audio/wav" else "mp3"}
