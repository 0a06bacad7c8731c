"""Environment and TOML file to one frozen `Settings`; the only reader of `os.environ`."""

from app.settings.loading import load_settings
from app.settings.tables import (
    AuthSettings,
    EngineSettings,
    FailoverSettings,
    LimitSettings,
    PlannerSettings,
    Price,
    RouteSettings,
    ServerSettings,
    Settings,
    TelemetrySettings,
)
from app.settings.values import ModelUrl, Secret

__all__ = [
    "AuthSettings",
    "EngineSettings",
    "FailoverSettings",
    "LimitSettings",
    "ModelUrl",
    "PlannerSettings",
    "Price",
    "RouteSettings",
    "Secret",
    "ServerSettings",
    "Settings",
    "TelemetrySettings",
    "load_settings",
]
