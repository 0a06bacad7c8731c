"""ASGI entry point: `uvicorn app.main:app`."""

from app.entrypoints.http.app import create_app
from app.settings import load_settings

app = create_app(load_settings())
