"""An issuer of tokens for client credentials: Authlib's own authorization server, served on loopback."""

from collections.abc import Callable
from secrets import token_hex
from typing import Any

import orjson
from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, OAuth2Request
from authlib.oauth2.rfc6749.grants import ClientCredentialsGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Client(ClientMixin):
    """The only client; it authenticates by its secret in a header."""

    def __init__(self, client_id: str, secret: str) -> None:
        self.client_id = client_id
        self._secret = secret

    def get_client_id(self) -> str:
        return self.client_id

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self._secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "client_credentials"


class Server(AuthorizationServer):
    """Authlib's server with one client; `on_token` gets each token that it issues."""

    def __init__(self, client: Client, on_token: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(scopes_supported=["read", "all"])
        self._only_client, self._on_token = client, on_token
        self.register_token_generator("default", BearerTokenGenerator(lambda **_: f"authlib-token-{token_hex(8)}"))
        self.register_grant(ClientCredentialsGrant)

    def query_client(self, client_id: str) -> Client | None:
        return self._only_client if client_id == self._only_client.client_id else None

    def save_token(self, token: dict[str, Any], request: OAuth2Request) -> None:
        self._on_token(token)

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Send nothing."""

    def create_oauth2_request(self, request: OAuth2Request) -> OAuth2Request:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> Response:
        return Response(orjson.dumps(body), status, dict(headers))


def issuer_app(client_id: str, secret: str, on_token: Callable[[dict[str, Any]], None]) -> Starlette:
    """Return the application, with `/token`."""
    server = Server(Client(client_id, secret), on_token)

    async def token(request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        asked = OAuth2Request(request.method, str(request.url), headers=request.headers)
        asked.payload = BasicOAuth2Payload(form)
        answer: Response = server.create_token_response(asked)
        return answer

    return Starlette(routes=[Route("/token", token, methods=["POST"])])
