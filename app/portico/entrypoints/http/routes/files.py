"""Routes of the files of a session: list, write, fetch and delete them.

A malformed id is a 404 like an unknown one; 404 takes precedence over other errors.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import unquote

import orjson
from fastapi import APIRouter, Depends, Path, Query
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from portico.domain.failures import Code
from portico.entrypoints.http.body import read_bytes
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.correlation import Header
from portico.entrypoints.http.errors import WholeResponse
from portico.entrypoints.http.openapi.responses import READ_FAILURES, Page, failures
from portico.entrypoints.http.parameters import (
    FileListQuery,
    ReadableQuery,
    SessionIdInPath,
    decode_cursor,
    encode_cursor,
)
from portico.entrypoints.http.routes.sessions import SESSION
from portico.orchestration.facade import FileView, WrittenFileView


class FilePathConvertor(PathConvertor):
    """A path with any characters, also line breaks."""

    regex = "(?s:.*)"


register_url_convertor("file_path", FilePathConvertor())
router = APIRouter(tags=["sessions"], dependencies=[AUTHENTICATED])
FILES = f"{SESSION}/files"
FILE = f"{FILES}/{{path:file_path}}"
_DOWNLOAD: tuple[Header, ...] = (
    (b"content-type", b"application/octet-stream"),
    (b"content-disposition", b"attachment"),
    (b"x-content-type-options", b"nosniff"),
)
_BYTES: Mapping[str, Any] = MappingProxyType(
    {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
)


def _path_as_sent(
    request: Request,
    path: Annotated[str, Path(description="Path of the file, relative; its slashes are sent as they are.")],
) -> str:
    """Return the path, in which bytes that are no UTF-8 are surrogates: the server has put other characters there."""
    before: int = request.scope["path"].removesuffix(path).count("/")
    sent: bytes = request.scope["raw_path"]
    return unquote(sent.decode("ascii"), errors="surrogateescape").split("/", before)[before]


FilePath = Annotated[str, Depends(_path_as_sent)]


async def _own_session(context: Context, session_id: SessionIdInPath) -> None:
    await context.facade.sessions.files.require(context.principal, session_id)


async def _own_file(context: Context, session_id: SessionIdInPath, path: FilePath) -> None:
    await context.facade.sessions.files.require(context.principal, session_id, path)


async def _writable_file(context: Context, session_id: SessionIdInPath, path: FilePath) -> None:
    await context.facade.sessions.files.require_writable(context.principal, session_id, path)


@router.get(
    FILES,
    operation_id="listFiles",
    summary="List the files of a session, by path",
    response_model=Page[FileView, str],
    responses=failures(*READ_FAILURES),
    dependencies=[Depends(_own_session)],
)
async def list_files(
    context: Context, session_id: SessionIdInPath, _: ReadableQuery, query: Annotated[FileListQuery, Query()]
) -> Response:
    """Return one page of the files of one's own session."""
    collection = FILES.format(session_id=session_id)
    after = decode_cursor(context.principal, collection, query.after)
    page = await context.facade.sessions.files.page(context.principal, session_id, after=after, limit=query.limit)
    data = [orjson.Fragment(view.model_dump_json()) for view in page.files]
    return context.page_response(data, encode_cursor(context.principal, collection, page.next))


@router.get(
    FILE,
    operation_id="getFile",
    summary="Fetch a file",
    response_class=Response,
    responses={200: {"description": "Its bytes", **_BYTES}, **failures(*READ_FAILURES, Code.ACCESS_DENIED)},
    dependencies=[Depends(_own_file)],
)
async def fetch_file(context: Context, session_id: SessionIdInPath, path: FilePath) -> Response:
    """Return the bytes of a file of one's own session. It needs `can_view_full_history`, as they are not redacted."""
    content = await context.facade.sessions.files.read(context.principal, session_id, path)
    return WholeResponse(200, content, (*_DOWNLOAD, *context.correlate().headers()))


@router.put(
    FILE,
    operation_id="putFile",
    summary="Write a file",
    response_model=WrittenFileView,
    response_description="The file, in place of an earlier one",
    responses={
        201: {"model": WrittenFileView, "description": "The file, which is new"},
        **failures(*READ_FAILURES, Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA, Code.ACCESS_DENIED),
    },
    openapi_extra={"requestBody": {"required": True, **_BYTES}},
    dependencies=[Depends(_writable_file)],
)
async def put_file(context: Context, session_id: SessionIdInPath, path: FilePath) -> Response:
    """Write the bytes of the body as a file of one's own session. A session that does not exist is made, empty."""
    files = context.facade.sessions.files
    content = await read_bytes(context, files.max_file_bytes)
    view, is_new = await files.write(context.principal, session_id, path, content)
    return context.object_response(view, 201 if is_new else 200)


@router.delete(
    FILE,
    operation_id="deleteFile",
    summary="Delete a file",
    response_class=Response,
    response_description="The file is gone",
    status_code=204,
    responses=failures(*READ_FAILURES, Code.ACCESS_DENIED),
    dependencies=[Depends(_own_file)],
)
async def delete_file(context: Context, session_id: SessionIdInPath, path: FilePath) -> Response:
    """Delete a file of one's own session."""
    await context.facade.sessions.files.delete(context.principal, session_id, path)
    return WholeResponse(204, b"", context.correlate().headers())
