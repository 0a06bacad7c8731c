"""Files of the console: how they are served, and what their sources keep to."""

import gzip
import re
from hashlib import sha256
from pathlib import Path

import pytest

from portico.entrypoints.http.console import assets
from portico.entrypoints.http.console.assets import console_assets, console_file, first_modules
from tests.support.fake_service import fake_app
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes, running_server
from tests.support.portico import portico

STATIC = Path(assets.__file__).parent / "static"
SOURCES = sorted(path for path in STATIC.rglob("*.*") if path.suffix in {".js", ".css", ".html"})
OWN = [path for path in SOURCES if path.parent.name != "vendor"]
VENDORED = "9fa1ecadc00b5782a354cde5ea2d5be76b8512fc90333b77edda293c7fb4543e"
REFUSED = re.compile(
    r"\b(dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|eval|localStorage|indexedDB|importScripts)\b"
    r"|document\.(cookie|write)|new Function|https?://(?!www\.w3\.org/2000/svg)"
)
GZIP = {"Accept-Encoding": "gzip, deflate"}
MOST_LINES_OF_A_FILE, MOST_CHARACTERS_OF_A_LINE = 400, 110
MOST_BYTES, MOST_BYTES_OF_THE_FIRST_PAGE = 97_000, 30_000


async def get(served: RunningServer, path: str, **headers: str) -> HttpAnswer:
    return await served.get(path, {name.replace("_", "-"): value for name, value in headers.items()})


async def test_the_index_names_every_file_by_the_digest_and_is_asked_for_anew() -> None:
    app, _ = fake_app()
    digest = console_assets().digest
    async with running_server(app) as served:
        moved = await get(served, "/console")
        index = await get(served, "/console/")
        again = await get(served, "/console/", If_None_Match=index.headers["etag"])
        names = re.findall(r'(?:src|href)="([^"]+)"', index.body.decode())
        files = [await get(served, f"/console/{name}") for name in names]
    assert (moved.status, moved.headers["location"]) == (308, "console/")
    assert (index.status, index.headers["cache-control"]) == (200, "no-cache")
    assert (again.status, again.body) == (304, b"")
    assert names
    assert all(name.startswith(f"{digest}/") for name in names)
    assert {(file.status, file.headers["cache-control"]) for file in files} == {
        (200, "public, max-age=31536000, immutable")
    }


async def test_every_answer_has_the_strict_policy() -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        for path in ("/console", "/console/", f"/console/{console_assets().digest}/app.js"):
            answer = await get(served, path)
            policy = answer.headers["content-security-policy"]
            assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cross-origin-opener-policy"] == "same-origin"
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["/console/0/app.js", "/console/{}/nothing.js", "/console/{}/../app.js", "/console/{}/vendor/preact.LICENSE"],
)
async def test_another_digest_or_an_unknown_file_is_not_found(path: str) -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await get(served, path.format(console_assets().digest))
    assert (answer.status, answer.json["code"]) == (404, "REQUEST_NOT_FOUND")


async def test_a_client_that_accepts_gzip_gets_the_same_file_compressed() -> None:
    app, _ = fake_app()
    path = f"/console/{console_assets().digest}/style.css"
    async with running_server(app) as served:
        plain = await served.get(path)
        compressed = await served.get(path, GZIP)
        refused = await served.get(path, {"Accept-Encoding": "gzip;q=0"})
    assert compressed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(compressed.body) == plain.body == refused.body
    assert "content-encoding" not in refused.headers
    assert plain.headers["vary"] == compressed.headers["vary"] == "Accept-Encoding"


async def test_head_has_no_body_and_other_methods_are_refused() -> None:
    app, _ = fake_app()
    async with running_server(app) as served, served.connect() as connection:
        await connection.send(request_bytes("HEAD", "/console/", {}))
        status, headers = await connection.head()
        posted = await served.ask(request_bytes("POST", "/console/", {}))
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (posted.status, set(posted.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})


async def test_a_console_that_is_not_enabled_does_not_exist() -> None:
    async with portico(console={"enabled": False}) as (served, _):
        answers = [await served.get(path) for path in ("/console", "/console/")]
    assert [(answer.status, answer.json["code"]) for answer in answers] == [(404, "REQUEST_NOT_FOUND")] * 2


async def test_the_files_are_public_while_the_api_needs_a_key() -> None:
    async with portico(auth={"mode": "keys"}) as (served, _):
        index = await served.get("/console/")
        me = await served.get("/v1/me")
    assert (index.status, me.status) == (200, 401)


def test_the_sources_use_nothing_that_makes_markup_or_keeps_data() -> None:
    found = [
        f"{path.relative_to(STATIC)}:{number}: {match[0]}"
        for path in OWN
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := REFUSED.search(line))
    ]
    assert found == []
    assert all(
        "<script>" not in path.read_text() and " style=" not in path.read_text()
        for path in OWN
        if path.suffix == ".html"
    )
    assert all(path.read_text().startswith("// @ts-check\n") for path in OWN if path.suffix == ".js")


def test_the_sources_are_laid_out_for_people() -> None:
    """Files and lines are short: what is left out on the wire costs the reader nothing."""
    lines = {path.relative_to(STATIC): path.read_text().splitlines() for path in OWN}
    assert [str(path) for path, each in lines.items() if len(each) > MOST_LINES_OF_A_FILE] == []
    assert [
        f"{path}:{number}"
        for path, each in lines.items()
        for number, line in enumerate(each, 1)
        if len(line) > MOST_CHARACTERS_OF_A_LINE
    ] == []


def test_the_files_fit_their_sizes_compressed() -> None:
    found = console_assets()
    sizes = {path: len(console_file(path).compressed) for path in found.sources}
    first = [*first_modules(found.sources), "style.css", "lists.css"]
    assert sum(sizes[path] for path in first) + len(found.index.compressed) <= MOST_BYTES_OF_THE_FIRST_PAGE
    assert sum(sizes.values()) <= MOST_BYTES


def test_the_vendored_module_is_the_one_whose_making_is_described() -> None:
    assert sha256((STATIC / "vendor" / "preact.js").read_bytes()).hexdigest() == VENDORED
    assert {path.name for path in (STATIC / "vendor").iterdir()} == {
        "README.md",
        "htm.LICENSE",
        "preact.d.ts",
        "preact.LICENSE",
        "preact.js",
    }
