"""ASGI entry point: `uvicorn portico.main:app`."""

from portico.entrypoints.http.app import create_app
from portico.settings import load_settings

app = create_app(load_settings())
