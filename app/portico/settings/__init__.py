"""Settings: environment and TOML file, read into one frozen `Settings`. Nothing else reads `os.environ`."""

from portico.settings.known_models import known_features, missing_capabilities
from portico.settings.loader import load_settings
from portico.settings.provider_keys import schemes_with_keys
from portico.settings.schema import Settings
from portico.settings.tables.audit import AuditSettings
from portico.settings.tables.auth import AuthSettings
from portico.settings.tables.client_key import client_key
from portico.settings.tables.connection import is_loopback
from portico.settings.tables.engines import EngineSettings, FailoverSettings, Price, RouteSettings
from portico.settings.tables.limits import LimitSettings, QueueSettings
from portico.settings.tables.planner import PlannerSettings
from portico.settings.tables.server import ServerSettings
from portico.settings.tables.storage import StorageSettings
from portico.settings.tables.telemetry import TelemetrySettings
from portico.settings.values import ModelUrl, Secret

__all__ = [
    "AuditSettings",
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
    "known_features",
    "load_settings",
    "missing_capabilities",
    "schemes_with_keys",
]
