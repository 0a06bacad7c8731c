"""Tools for files: list, read, write and edit those of the session, of the execution or of the tenant."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

from pydantic import Field

from portico.adapters.tools.files.beneath import PathError
from portico.adapters.tools.files.directories import (
    FileDirectories,
    FileEntry,
    FileLimitError,
    MissingFileError,
    UnusableFileError,
)
from portico.capabilities.tools.definition import FunctionTool, ToolArgumentError, ToolFunction, first_paragraph
from portico.domain.fingerprints import digest
from portico.domain.tools import Caller, SideEffects, ToolInfo
from portico.ports.files import WrittenFile
from portico.ports.tool import ToolContext, ToolError

MAX_ENTRIES: Final = 1_000
_CONTAINMENT: Final = "Files of one directory only, opened so that no link leads out of it."
_Path = Annotated[str, Field(min_length=1, description="Path of the file, relative, with `/` between its parts")]


class FileTools:
    """The tools over these directories; a call has the directory of its caller."""

    def __init__(self, directories: FileDirectories) -> None:
        self._directories = directories

    def tools(self) -> Sequence[FunctionTool]:
        """Return the tools."""
        return [
            self._tool(self.list_directory, SideEffects.READ),
            self._tool(self.read_file, SideEffects.READ),
            self._tool(self.write_file, SideEffects.WRITE),
            self._tool(self.edit_file, SideEffects.WRITE),
        ]

    def list_directory(
        self,
        context: ToolContext,
        path: Annotated[str, Field(min_length=1, description="Path of the directory; `.` is the outermost one")] = ".",
    ) -> dict[str, Any]:
        """List the files and directories of a directory, by name."""
        caller = _caller(context)
        with _for_model():
            self._directories.made(caller)
            entries = self._directories.entries(caller, path)
        return {"entries": list(map(_entry, entries[:MAX_ENTRIES])), "truncated": len(entries) > MAX_ENTRIES}

    def read_file(
        self,
        context: ToolContext,
        path: _Path,
        first_line: Annotated[int, Field(ge=1, description="Number of the first line to read, from 1")] = 1,
        lines: Annotated[int, Field(ge=1, description="Number of lines to read")] = 2_000,
    ) -> str:
        """Read lines of a text file."""
        with _for_model():
            content = self._directories.read(_caller(context), path, self._directories.limits.file_bytes)
        read = _text(content).splitlines(keepends=True)
        return "".join(read[first_line - 1 : first_line - 1 + lines])

    def write_file(
        self, context: ToolContext, path: _Path, content: Annotated[str, Field(description="All of its text")]
    ) -> dict[str, Any]:
        """Write a text file, in place of an earlier one; missing directories are made."""
        with _for_model():
            return _view(self._directories.write(_caller(context), path, _encoded("content", content)))

    def edit_file(
        self,
        context: ToolContext,
        path: _Path,
        old_text: Annotated[str, Field(min_length=1, description="Text to replace, which must occur exactly once")],
        new_text: Annotated[str, Field(description="Text that takes its place")],
    ) -> dict[str, Any]:
        """Replace a text that occurs exactly once in a text file."""
        _encoded("old_text", old_text), _encoded("new_text", new_text)
        with _for_model():
            written, is_changed = self._directories.edit(
                _caller(context), path, lambda content: replaced(_text(content), old_text, new_text).encode()
            )
        return {**_view(written), "changed": is_changed}

    def _tool(self, function: ToolFunction, side_effects: SideEffects) -> FunctionTool:
        directories = self._directories
        return FunctionTool(
            function,
            ToolInfo(
                function.__name__,
                "file",
                first_paragraph(function),
                side_effects,
                idempotent=True,
                identity=digest("files", str(directories.root), directories.is_for_tenant),
                containment=_CONTAINMENT,
            ),
        )


def replaced(text: str, old: str, new: str) -> str:
    """Return the text with the only `old` replaced; the text itself if there is only `new`, as after the same call.

    An `old` within a `new` does not count, so that a repeated call does not add its line twice. Raises: ToolError.
    """
    places = _places(text, old)
    if new:
        done = _places(text, new)
        places = [at for at in places if not any(begin <= at and at + len(old) <= begin + len(new) for begin in done)]
        if not places and done:
            return text
    if len(places) != 1:
        raise ToolError(f"old_text must occur exactly once, and occurs {len(places)} times")
    return text[: places[0]] + new + text[places[0] + len(old) :]


def _places(text: str, part: str) -> list[int]:
    """Return where the part begins, also where it overlaps itself."""
    places, at = [], text.find(part)
    while at >= 0:
        places.append(at)
        at = text.find(part, at + 1)
    return places


def _caller(context: ToolContext) -> Caller:
    if context.caller is None:
        raise ToolError("files belong to a session or an execution, and this call is of neither")
    return context.caller


@contextmanager
def _for_model() -> Iterator[None]:
    """Say why a path or a file is refused. Raises: ToolArgumentError for a path that no file can have; ToolError."""
    try:
        yield
    except PathError as refused:
        raise ToolArgumentError((("arguments.path", str(refused)),)) from None
    except (MissingFileError, FileLimitError) as refused:
        raise ToolError(str(refused)) from None
    except UnusableFileError as refused:
        raise ToolError(f"the path {refused}") from None


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolArgumentError(((f"arguments.{name}", "must be valid Unicode"),)) from None


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ToolError(f"the file is no UTF-8 text; it has {len(content)} bytes") from None


def _entry(entry: FileEntry) -> dict[str, Any]:
    """Return an entry for a model; of a name that is no UTF-8 the rest."""
    name = entry.path.encode(errors="replace").decode()
    return {"name": name, "type": entry.kind, "bytes": entry.status.st_size}


def _view(written: WrittenFile) -> dict[str, Any]:
    return {"path": written.path, "bytes": written.size, "sha256": written.sha256}
