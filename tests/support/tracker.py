"""An issue tracker on loopback that knows its users by their tokens, and an issuer of such tokens."""

import base64
from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class Tracker:
    """`users` by token; the tokens that came; with `echoes` the reply holds the token. `/token` issues tokens."""

    def __init__(self, users: Mapping[str, str], *, echoes: bool = False) -> None:
        self.users = dict(users)
        self.tokens: list[str] = []
        self.issued: list[str] = []
        self.forms: list[dict[str, list[str]]] = []
        self.lifetime: int | None = 3_600
        self.refusal: dict[str, str] | None = None
        self._echoes = echoes
        methods = ["GET", "POST"]
        self.app = Starlette(
            routes=[
                Route("/issues", self._issues, methods=methods),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    async def _issues(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.tokens.append(token)
        if token not in self.users:
            return JSONResponse({"error": "unauthorized"}, 401)
        return JSONResponse({"issues": f"those of {self.users[token]}", **self._echo(token)})

    def _echo(self, token: str) -> dict[str, str]:
        return {"seen": token, "coded": base64.b64encode(f"Bearer {token}".encode()).decode()} if self._echoes else {}

    async def _token(self, request: Request) -> Response:
        self.forms.append(parse_qs((await request.body()).decode()))
        if self.refusal is not None:
            return JSONResponse(self.refusal, 401)
        token = f"issued-token-{len(self.issued)}"
        self.issued.append(token)
        self.users[token] = "the service"
        expiry = {} if self.lifetime is None else {"expires_in": self.lifetime}
        return JSONResponse({"access_token": token, "token_type": "Bearer", **expiry})
