"""The whole configuration, made of its tables, and checks across them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from portico.capabilities.models.catalogue import DEFAULT_ROUTE
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.plan.policy import EffectivePlanPolicy
from portico.domain.plan.steps import STEP_SPECS, StepType
from portico.settings.tables.agents import AgentName, AgentSettings, agent_errors
from portico.settings.tables.audit import AuditSettings
from portico.settings.tables.auth import AuthSettings, auth_errors
from portico.settings.tables.channels import ChannelSettings, ConfiguredChannel
from portico.settings.tables.connection import HeadersFile, ProxyEnvironment, is_loopback
from portico.settings.tables.credentials import CredentialName, CredentialSettings, credential_errors
from portico.settings.tables.directories import GrammarSettings, PromptSettings
from portico.settings.tables.engines import EngineSettings, FailoverSettings, RouteSettings, engine_errors, route_errors
from portico.settings.tables.guards import GuardName, GuardSettings, guard_errors
from portico.settings.tables.ingress import IngressSettings, ingress_errors, shadowed_models
from portico.settings.tables.limits import LimitSettings, QueueSettings, TenantName, TenantSettings
from portico.settings.tables.mcp import McpSettings
from portico.settings.tables.media import MediaSettings
from portico.settings.tables.memory import MemorySettings, memory_errors
from portico.settings.tables.modules import AnswerRuleSettings, FlowSettings, PlanModuleSettings
from portico.settings.tables.planner import PlannerSettings, planner_errors
from portico.settings.tables.policy import PolicySettings, RuleSettings
from portico.settings.tables.secrets import SecretSettings
from portico.settings.tables.server import ANY_ORIGIN, ConsoleSettings, ServerSettings
from portico.settings.tables.sessions import SessionSettings
from portico.settings.tables.skills import SkillSettings
from portico.settings.tables.storage import StorageSettings
from portico.settings.tables.telemetry import TelemetrySettings
from portico.settings.tables.tool_sources import EnvironmentFile, ToolSettings
from portico.settings.tables.webhooks import WebhookSettings, webhook_errors
from portico.settings.values import ModelUrl, Name, Secret, Table, closest_name

_LONG_STOP_SECONDS: Final = 600
_CLOSING_SECONDS: Final = 2


def _rehearsal() -> dict[str, EngineSettings]:
    return {"rehearsal": EngineSettings(model=ModelUrl.parse("rehearsal://"))}


class Settings(Table):
    """The whole configuration. There is always an engine, and always a route `default`.

    Without `[engines]` the built-in rehearsal engine answers. A missing route `default` consists of all engines in file
    order.
    """

    server: ServerSettings = Field(default_factory=ServerSettings)
    console: ConsoleSettings = Field(default_factory=ConsoleSettings)
    storage: StorageSettings = Field(default_factory=StorageSettings)
    queue: QueueSettings = Field(default_factory=QueueSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
    grammars: GrammarSettings = Field(default_factory=GrammarSettings)
    prompts: PromptSettings = Field(default_factory=PromptSettings)
    ingress: IngressSettings = Field(default_factory=IngressSettings)
    mcp: McpSettings = Field(default_factory=McpSettings)
    media: MediaSettings = Field(default_factory=MediaSettings)
    sessions: SessionSettings = Field(default_factory=SessionSettings)
    skills: SkillSettings = Field(default_factory=SkillSettings)
    failover: FailoverSettings = Field(default_factory=FailoverSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    tenants: Mapping[TenantName, TenantSettings] = Field(default_factory=dict)
    channels: Mapping[ConfiguredChannel, ChannelSettings] = Field(default_factory=dict)
    planner: PlannerSettings = Field(default_factory=PlannerSettings)
    plan: PlanModuleSettings = Field(default_factory=PlanModuleSettings)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    rules: AnswerRuleSettings = Field(default_factory=AnswerRuleSettings)
    flows: FlowSettings = Field(default_factory=FlowSettings)
    tools: ToolSettings = Field(default_factory=ToolSettings)
    policy: PolicySettings = Field(default_factory=PolicySettings)
    engines: Mapping[Name, EngineSettings] = Field(default_factory=_rehearsal)
    routes: Mapping[Name, RouteSettings] = Field(default_factory=dict, validate_default=True)
    agents: Mapping[AgentName, AgentSettings] = Field(default_factory=dict)
    guardrails: Mapping[GuardName, GuardSettings] = Field(default_factory=dict)
    credentials: Mapping[CredentialName, CredentialSettings] = Field(default_factory=dict)
    secrets: SecretSettings = Field(default_factory=SecretSettings)
    webhooks: WebhookSettings = Field(default_factory=WebhookSettings)
    _proxies: ProxyEnvironment = PrivateAttr(default_factory=ProxyEnvironment)
    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _engine_source: str = PrivateAttr(default="")
    _file: Path = PrivateAttr(default=Path("portico.toml"))
    _child_environment: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def is_rehearsal(self) -> bool:
        """Return True if no engine is configured, so that the built-in one answers."""
        return "engines" not in self.model_fields_set

    def model_of(self, address: str) -> str:
        """Return the model that an engine or `ENGINE/DEPLOYMENT` asks, and where that is configured; empty for the
        built-in engine.
        """
        if self.is_rehearsal:
            return ""
        name, _, deployment = address.partition("/")
        engine = self.engines[name].endpoint(deployment) if deployment else self.engines[name]
        return f"{engine.model.model} (from {self._engine_source})"

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Return the accepted Host headers; with authentication, a request that another page forges has no key."""
        is_open = self.auth.mode != "none" and "allowed_hosts" not in self.server.model_fields_set
        return ("*",) if is_open else self.server.allowed_hosts

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings about the sources of the settings, and about a stop that takes long."""
        seconds = self.server.lame_duck_seconds + self.server.drain_seconds + _CLOSING_SECONDS
        if seconds <= _LONG_STOP_SECONDS:
            return self._warnings
        slow = f"a stop takes up to {seconds:g} s: server.lame_duck_seconds, server.drain_seconds and 2 more"
        return (*self._warnings, slow)

    @property
    def directory(self) -> Path:
        """Return the directory of the configuration file, or the current one if there is no file."""
        return self._file.parent

    @property
    def child_environment(self) -> Mapping[str, str]:
        """Return the variables that programs inherit: PATH, LANG and TZ."""
        return self._child_environment

    @property
    def protected_files(self) -> Sequence[Path]:
        """Return the files that no program may be shown: configuration, database, audit log, and the secrets."""
        named = [Path(name) for name in (self.auth.bootstrap_key_file, self.audit.file) if name is not None]
        own = (self._file, self.storage.file, *named, *self._seal_files())
        return [path.resolve() for path in (*own, *_secret_files(self)) if path is not None]

    def _seal_files(self) -> tuple[Path, ...]:
        """Return the files of the keys that seal secrets."""
        database, key_file = self.storage.file, self.secrets.key_file
        beside = () if database is None else (database.with_name("secrets.key"),)
        return beside if key_file is None else (*beside, Path(key_file))

    @property
    def files_root(self) -> Path | None:
        """Return the directory of all files of tools, without links; None if none is configured."""
        files = self.tools.files
        return None if files is None else (self.directory / files.root).resolve()

    def named_tools(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the name of each tool that a rule, a tenant or an agent names."""
        policy = self.policy
        rules = {"allow": policy.allow, "deny": policy.deny, "approve": policy.approve}
        for kind, found in {**rules, "pre_authorise": policy.pre_authorise}.items():
            yield from ((f"policy.{kind}.{index}.tool", rule.tool) for index, rule in enumerate(found))
        lists = {"policy.trusted_output": policy.trusted_output}
        lists |= {f"tenants.{name}.tools": tenant.tools or () for name, tenant in self.tenants.items()}
        lists |= {f"channels.{name}.tools": channel.tools or () for name, channel in self.channels.items()}
        lists |= {f"agents.{name}.tools": agent.tools for name, agent in self.agents.items()}
        for key, names in lists.items():
            yield from ((f"{key}.{index}", name) for index, name in enumerate(names))

    def plan_policy(
        self, tools: Iterable[str] | None = None, module_types: Iterable[str] | None = None
    ) -> EffectivePlanPolicy:
        """Return the policy for the configured plan; without `tools` any tool may be called.

        Without `module_types` a step may have any type, if modules define some.
        """
        if module_types is None:
            module_types = {step.type for step in self.planner.steps} - set(StepType) if self.plan.modules else ()
        others = tuple(module_types)
        return EffectivePlanPolicy(
            max_steps=self.limits.plan_steps,
            allowed_step_types=frozenset((*STEP_SPECS, *others)),
            module_types=others,
            require_linear=False,
            timeout_per_step=None,
            attempts=self.limits.attempts,
            replicas=self.limits.replicas,
            timeout=self.limits.timeout,
            tools=None if tools is None else frozenset(tools),
        )

    @field_validator("routes")
    @classmethod
    def _add_default_route(
        cls, routes: Mapping[str, RouteSettings], info: ValidationInfo
    ) -> Mapping[str, RouteSettings]:
        return {DEFAULT_ROUTE: RouteSettings(engines=tuple(info.data.get("engines", ()))), **routes}

    def proxy_of_environment(self, url: str) -> str | None:
        """Return the proxy that the environment names for an address, None for a direct connection.

        Raises: ConfigurationFailure (CONFIG_INVALID) naming the variable that is not a proxy.
        """
        try:
            return self._proxies.proxy_for(url)
        except ValueError as error:
            raise ConfigurationFailure(Code.CONFIG_INVALID, str(error)) from None

    def proxy_for(self, engine: EngineSettings, url: str) -> str | None:
        """Return the proxy through which an engine is reached at an address, None for a direct connection.

        Raises: ConfigurationFailure (CONFIG_INVALID) naming the variable of the environment that is not a proxy.
        """
        if engine.proxy is not None:
            return engine.proxy.read()
        return self.proxy_of_environment(url)

    @model_validator(mode="after")
    def _read_context(self, info: ValidationInfo) -> Self:
        context = info.context or {}
        environ = context.get("environ", {})
        self._proxies = ProxyEnvironment.of(environ)
        shadowed = shadowed_models(self.agents, {*self.engines, *self.routes})
        self._warnings = (*context.get("warnings", ()), *shadowed)
        self._engine_source = context.get("engine_source", "")
        self._file = context.get("file", Path("portico.toml"))
        self._child_environment = {name: environ[name] for name in ("PATH", "LANG", "TZ") if name in environ}
        return self

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        """Check conditions that concern several keys. Raises: ConfigurationFailure (CONFIG_NO_ENGINE)."""
        is_missing = not self.engines or (self.is_rehearsal and not is_loopback(self.server.host))
        if is_missing and not any(_listener_errors(self)):
            raise ConfigurationFailure(
                Code.CONFIG_NO_ENGINE, "engines: none is configured; add a table [engines.NAME] with a model"
            )
        errors = [f"{key}: {message}" for check in _CONSISTENCY_CHECKS for key, message in check(self)]
        if errors:
            raise ValueError("; ".join(errors))
        return self


def can_seal(settings: Settings) -> bool:
    """Return False if secrets cannot be stored: on PostgreSQL replicas have to share the keys of a file."""
    return settings.secrets.key_file is not None or not settings.storage.url.startswith("postgres")


def _secret_files(item: object) -> Iterator[Path | None]:
    """Yield the files of the secrets in a table and in those below it."""
    match item:
        case Secret() | HeadersFile() | EnvironmentFile():
            yield item.path
        case Table():
            for name in type(item).model_fields:
                yield from _secret_files(getattr(item, name))
        case Mapping():
            for each in item.values():
                yield from _secret_files(each)


def _listener_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.auth.mode == "none" and not is_loopback(settings.server.host):
        message = 'must be loopback (127.0.0.1, ::1 or localhost) while auth.mode is "none"'
        yield "server.host", f'{message}; set auth.mode to "keys" to listen on a network'
    if settings.server.metrics_port is not None and settings.server.metrics_port == settings.server.port:
        yield "server.metrics_port", "must differ from server.port"
    if ANY_ORIGIN in settings.server.cors_origins:
        if settings.auth.mode == "none":
            yield (
                "server.cors_origins",
                'must name origins while auth.mode is "none": any web page could use the service',
            )
        elif len(settings.server.cors_origins) > 1:
            yield "server.cors_origins", 'must be ["*"] alone, or name origins'


def _auth_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from auth_errors(settings.auth)
    if settings.mcp.enabled and settings.auth.mode == "jwt" and settings.server.public_url is None:
        yield "server.public_url", 'must be set while mcp.enabled is true and auth.mode is "jwt"'
    yield from memory_errors(settings.memory, settings.engines)


def _engine_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from engine_errors(settings.engines)
    yield from route_errors(settings.routes, settings.engines)


def _planner_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from planner_errors(settings.planner, settings.plan_policy())


def _agent_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from agent_errors(settings.agents)
    models = {*settings.engines, *settings.routes}
    for name, agent in settings.agents.items():
        here = f"agents.{name}"
        if agent.model is not None and agent.model not in models:
            closest = closest_name(agent.model, models)
            yield f"{here}.model", f"must name a route or an engine; did you mean {closest}?"
        for limit, value in agent.limits:
            cap = getattr(settings.limits, limit, None)
            if value is not None and cap is not None and value > cap:
                yield f"{here}.limits.{limit}", f"must be at most limits.{limit}, which is {cap}"
        if agent.hints.timeout is not None and agent.hints.timeout > settings.limits.timeout:
            yield f"{here}.hints.timeout", f"must be at most limits.timeout, which is {settings.limits.timeout:g}"


def _access_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield an error for each model and agent that a tenant or a rule names and that is not there."""
    named: list[tuple[str, str, Iterable[str]]] = []
    models, agents = {*settings.engines, *settings.routes}, {*settings.agents}
    tables = {f"tenants.{name}": tenant for name, tenant in settings.tenants.items()}
    for here, table in (tables | {f"channels.{name}": each for name, each in settings.channels.items()}).items():
        named += [(f"{here}.models.{index}", model, models) for index, model in enumerate(table.models or ())]
        named += [(f"{here}.agents.{index}", agent, agents) for index, agent in enumerate(table.agents or ())]
    for kind in ("allow", "deny", "approve", "pre_authorise"):
        rules: tuple[RuleSettings, ...] = getattr(settings.policy, kind)
        named += [
            (f"policy.{kind}.{index}.agent", rule.agent, agents)
            for index, rule in enumerate(rules)
            if rule.agent is not None
        ]
    for key, name, known in named:
        if not name.endswith("*") and name not in known:
            yield key, f"must name one of {', '.join(sorted(known)) or 'none'}"


def _guard_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from guard_errors(settings.guardrails, settings.routes, settings.engines, settings.agents)


def _ingress_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from ingress_errors(settings.ingress, settings.agents, {*settings.engines, *settings.routes})


def _webhook_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from webhook_errors(settings.webhooks, settings.agents)


def _credential_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from credential_errors(settings.credentials, settings.tools, seals=can_seal(settings))


_CONSISTENCY_CHECKS = (
    _listener_errors,
    _auth_errors,
    _engine_errors,
    _planner_errors,
    _agent_errors,
    _access_errors,
    _guard_errors,
    _ingress_errors,
    _webhook_errors,
    _credential_errors,
)
