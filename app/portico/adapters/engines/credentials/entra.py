"""Tokens of Microsoft Entra for Azure OpenAI, by azure-identity, which the extra `azure` installs."""

from typing import Final

from azure.identity import DefaultAzureCredential

from portico.adapters.engines.credentials.expiry import Found
from portico.ports.runtime import Clock

SCOPE: Final = "https://cognitiveservices.azure.com/.default"


def find_token(clock: Clock) -> Found[dict[str, str]]:
    """Return the header of a new token of what azure-identity finds here. Raises: what azure-identity raises."""
    with DefaultAzureCredential() as credential:
        token = credential.get_token_info(SCOPE)
    headers = {"Authorization": f"Bearer {token.token}"}
    return Found(headers, lambda seconds: clock.now() + seconds >= token.expires_on)
