"""Settings: environment and TOML file, read into one frozen `Settings`. Nothing else reads `os.environ`."""

from app.settings.known_models import known_model
from app.settings.loader import load_settings
from app.settings.schema import (
    EngineSettings,
    FailoverSettings,
    LimitSettings,
    Price,
    QueueSettings,
    RouteSettings,
    ServerSettings,
    Settings,
    StorageSettings,
)
from app.settings.tables.auth import AuthSettings
from app.settings.tables.client_key import CLIENT_KEY, client_key
from app.settings.tables.connection import is_loopback
from app.settings.tables.planner import PlannerSettings
from app.settings.tables.telemetry import TelemetrySettings
from app.settings.values import ModelUrl, Secret

__all__ = [
    "CLIENT_KEY",
    "AuthSettings",
    "EngineSettings",
    "FailoverSettings",
    "LimitSettings",
    "ModelUrl",
    "PlannerSettings",
    "Price",
    "QueueSettings",
    "RouteSettings",
    "Secret",
    "ServerSettings",
    "Settings",
    "StorageSettings",
    "TelemetrySettings",
    "client_key",
    "is_loopback",
    "known_model",
    "load_settings",
]
