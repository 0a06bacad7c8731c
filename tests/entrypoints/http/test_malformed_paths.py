"""Malformed names and ids in every path of the API are not there, and never an internal error."""

import re

import orjson

from tests.support.http_server import request_bytes
from tests.support.portico import portico

MALFORMED = ("%00", "a%20b", "x" * 300)


async def test_a_malformed_name_or_id_in_any_path_is_never_an_internal_error() -> None:
    async with portico() as (served, _):
        paths = (await served.get("/openapi.json")).json["paths"]
        faults = []
        for path, methods in paths.items():
            if "{" not in path:
                continue
            for method in methods.keys() & {"get", "put", "post", "delete", "patch"}:
                for value in MALFORMED:
                    asked = re.sub(r"\{[^}]*\}", value, path)
                    body = orjson.dumps({}) if method in {"put", "post", "patch"} else None
                    headers = {"Content-Type": "application/json"} if body else {}
                    answer = await served.ask(request_bytes(method.upper(), asked, headers, body))
                    if answer.status >= 500:
                        faults.append((method, asked[:80], answer.status))
    assert faults == []
