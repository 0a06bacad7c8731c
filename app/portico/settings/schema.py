"""Tables of the configuration file, their defaults, and checks across tables."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from portico.capabilities.models.catalogue import DEFAULT_ROUTE
from portico.domain.access.limits import AccessLimits
from portico.domain.access.principal import ObjectKind
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.limits import ConfiguredLimits
from portico.domain.plan.policy import EffectivePlanPolicy
from portico.domain.plan.steps import STEP_SPECS, StepType
from portico.ports.model import EngineCapabilities
from portico.settings.known_models import known_model
from portico.settings.tables.agents import AgentName, AgentSettings, agent_errors
from portico.settings.tables.auth import AuthSettings, auth_errors
from portico.settings.tables.connection import (
    HeaderSettings,
    ProxyEnvironment,
    ProxySetting,
    ReadableFile,
    is_loopback,
)
from portico.settings.tables.guards import GuardName, GuardSettings, guard_errors
from portico.settings.tables.memory import MemorySettings, memory_errors
from portico.settings.tables.modules import AnswerRuleSettings, ModuleNames, PlanModuleSettings
from portico.settings.tables.planner import PlannerSettings, planner_errors
from portico.settings.tables.policy import PolicySettings
from portico.settings.tables.sessions import SessionSettings
from portico.settings.tables.skills import SkillSettings
from portico.settings.tables.telemetry import TelemetrySettings
from portico.settings.tables.tool_sources import ToolSettings
from portico.settings.values import (
    SCHEMES,
    BaseUrl,
    CostRate,
    ModelScheme,
    ModelUrl,
    ModelUrlText,
    Secret,
    SecretFromFile,
    SecretFromVariable,
    Table,
    UnitRate,
)


def closest_name(name: str, known: Iterable[str]) -> str:
    """Return the most similar of the known names."""
    return get_close_matches(name, list(known), n=1, cutoff=0)[0]


def _known_capability(name: str) -> str:
    known = [field.name for field in fields(EngineCapabilities)]
    if name not in known:
        raise ValueError(f"is not known; did you mean {closest_name(name, known)}?")
    return name


def _storage_url(url: str) -> str:
    if not (_SQLITE_URL.fullmatch(url) or _POSTGRESQL_URL.fullmatch(url)):
        raise ValueError("must be sqlite:///path/to/a/file or postgresql://user@host/database")
    return url


_SQLITE_URL = re.compile(r"sqlite://(/[^?#\x00-\x1f]*[^/?#\x00-\x1f])?")
_POSTGRESQL_URL = re.compile(r"postgres(ql)?://[^\s/?#]*/[^\s/?#]+(\?[^\s#]*)?")
Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
ObjectName = Annotated[str, StringConstraints(pattern=r"^([a-zA-Z0-9_.:/-]{1,128}\*?|\*)$")]
TenantName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._@|:-]{1,128}$")]
CapabilityName = Annotated[str, AfterValidator(_known_capability)]
HostPattern = Annotated[str, StringConstraints(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])$")]
OptionName = Annotated[str, StringConstraints(min_length=1)]
Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Wait = Annotated[float, Field(ge=0)]


def _loopback_names(validated: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names under which a browser may reach a listener on loopback; any other may be an attacker's."""
    host: str = validated.get("host", "localhost")
    listener = f"[{host}]" if ":" in host else host
    return tuple(dict.fromkeys(("localhost", "127.0.0.1", "[::1]", listener)))


class ServerSettings(Table):
    """Listener of the service."""

    host: str = Field("127.0.0.1", description="Address to listen on; loopback only while `auth.mode` is `none`")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8080, description="Port to listen on; 0 lets the system choose")
    metrics_host: str = Field("127.0.0.1", description="Address to listen on at `metrics_port`")
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="Port of `/metrics`, which is then nowhere else; without it, it is at `port`"
    )
    drain_seconds: Wait = Field(30, description="Grace period for running executions after SIGTERM")
    max_in_flight: Positive = Field(1000, description="Executions that run at the same time; more are refused with 503")
    allowed_hosts: Annotated[tuple[HostPattern, ...], Field(min_length=1, strict=False)] = Field(
        default_factory=_loopback_names,
        description="Accepted Host headers: a host, `*.` and a domain, or `*`; by default the names of loopback, with "
        "authentication any",
    )


class StorageSettings(Table):
    """Storage of executions."""

    url: Annotated[str, AfterValidator(_storage_url)] = Field(
        "sqlite:///var/portico.db",
        description="`sqlite:///path`, `sqlite://` (in memory) or `postgresql://user@host/database`",
    )
    event_retention_days: Annotated[float, Field(gt=0, le=36_500)] = Field(
        7, description="Days after its end until steps and events of an execution are deleted"
    )
    statement_timeout: Annotated[float, Field(ge=0.5, le=600)] = Field(
        5, description="Seconds after which PostgreSQL is given up; the creation of tables and maintenance take longer"
    )
    answer_retention_days: Annotated[float, Field(gt=0, le=36_500)] = Field(
        90, description="Days after its end until an execution is deleted, and after its last turn until a session is"
    )
    replica_timeout: Annotated[float, Field(ge=1, le=600)] = Field(
        10, description="Silence after which a replica on PostgreSQL is considered dead"
    )


class QueueSettings(Table):
    """Limits of background executions."""

    waiting: Natural = Field(10_000, description="Background executions that may wait, on all replicas together")
    at_once: Positive = Field(
        1_000, description="Background executions that run at the same time, on all replicas together"
    )
    per_tenant: Positive = Field(500, description="Background executions of one tenant that run at the same time")


class GrammarSettings(Table):
    """Named grammars."""

    directory: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Directory of named grammars: the file `NAME.gbnf` is the grammar `NAME`"
    )


class PromptSettings(Table):
    """Texts of the service's own prompts."""

    directory: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Directory of changed texts: the file `PROMPT_ID.txt` replaces the text of that prompt"
    )


class FlowSettings(Table):
    """Flows: the modules that register them, and the surroundings of their functions."""

    modules: ModuleNames = Field(
        (), description="Python modules that register flows; the directory of the configuration file is importable"
    )
    working_dir: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Root of all paths of nodes; the current directory if absent"
    )
    commands: Annotated[tuple[Name, ...], Field(strict=False)] = Field((), description="Commands that nodes may run")
    http_timeout: Seconds = Field(30, description="Timeout of the HTTP client of nodes, in seconds")


class FailoverSettings(Table):
    """Attempts of one inference. Times are in seconds."""

    max_retries: Annotated[int, Field(ge=0, le=100)] = Field(
        1, description="Retries on the same engine before the next one is tried"
    )
    connect_timeout: Seconds = Field(5, description="Limit for name resolution, connection and TLS")
    attempt_timeout: Seconds = Field(120, description="Limit for a whole attempt")
    first_token_timeout: Seconds = Field(60, description="Limit until the first token of a stream")
    idle_timeout: Seconds = Field(30, description="Limit between two reads of a reply")
    retry_after_cap: Wait = Field(30, description="Longest `Retry-After` of a provider that is waited for")
    breaker_failures: Natural = Field(
        5, description="Failures within the window that open the circuit breaker; 0 turns it off"
    )
    breaker_window: Seconds = Field(30, description="Window in which failures are counted")
    breaker_cooldown: Seconds = Field(15, description="Time until an open breaker allows a probe")
    retry_budget: Annotated[float, Field(ge=0, le=1)] = Field(
        0.2, description="Share of the attempts that may be retries"
    )
    retry_floor: Natural = Field(10, description="Retries that are always allowed within the window")


class LimitSettings(ConfiguredLimits, Table):
    """Limits of one request, which may narrow them. `timeout` is in seconds of running time."""


class TenantSettings(Table):
    """Limits of all callers of a tenant together, and what each of them may use.

    A rate is a text `N/S`: N units at once, which come back evenly within S seconds.
    """

    requests: UnitRate | None = Field(None, description="Executions and forks that may begin, as `600/60`")
    tokens: UnitRate | None = Field(None, description="Tokens of all inferences, as `200000/60`")
    cost: CostRate | None = Field(None, description="Cost of all inferences in `telemetry.currency`, as `5.00/86400`")
    concurrency: Positive | None = Field(None, description="Executions that run at the same time")

    tools: Annotated[tuple[ObjectName, ...], Field(strict=False)] | None = Field(
        None, description="Tools that may be used; a trailing `*` is a prefix. All if absent"
    )
    models: Annotated[tuple[ObjectName, ...], Field(strict=False)] | None = Field(
        None, description="Routes and engines that may be used, likewise; a route covers its engines"
    )
    agents: Annotated[tuple[ObjectName, ...], Field(strict=False)] | None = Field(
        None, description="Agents that may be used, likewise"
    )

    @property
    def rights(self) -> Mapping[ObjectKind, tuple[str, ...]]:
        """Return the names of each kind that is narrowed."""
        given: Mapping[ObjectKind, tuple[str, ...] | None] = {
            "tool": self.tools,
            "model": self.models,
            "agent": self.agents,
        }
        return {kind: names for kind, names in given.items() if names is not None}

    @property
    def limits(self) -> AccessLimits:
        """Return the limits."""
        return AccessLimits(self.requests, self.tokens, self.cost, self.concurrency)


class Price(Table):
    """Price of a million tokens, in the configured currency."""

    input: Annotated[float, Field(ge=0)] = Field(description="Price of a million input tokens")
    output: Annotated[float, Field(ge=0)] = Field(description="Price of a million output tokens")
    cached: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Price of a million input tokens that were read from a cache"
    )
    cache_write: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Price of a million input tokens that were written to a cache"
    )


def _default_window(validated: Mapping[str, Any]) -> int:
    """Return the context window of a known model, else the default of its scheme."""
    model: ModelUrl | None = validated.get("model")
    if model is None:
        return ModelScheme().context_window
    known = known_model(model.scheme, model.model)
    return SCHEMES[model.scheme].context_window if known is None else known.context_window


class EngineSettings(Table):
    """Model endpoint.

    `api` chooses between the two of OpenAI; by default the name of the model decides. `capabilities` corrects those
    that the scheme implies. `proxy` replaces the proxy of the environment, `ca_file` the certificate authorities of the
    system. `headers` are added to each request and replace those of the same name.
    """

    model: ModelUrlText = Field(description="Model URL, see above")
    base_url: BaseUrl | None = Field(None, description="Base URL of the provider, as its SDK takes it")
    api_key_env: SecretFromVariable | None = Field(None, description="Environment variable that holds the credential")
    api_key_file: SecretFromFile | None = Field(
        None, description="File that holds the credential; read again when it changes"
    )
    context_window: Positive = Field(
        default_factory=_default_window,
        description="Context window in tokens; by default that of a known model, 16384 for ollama and llamacpp",
    )
    response_reserve: Natural = Field(4096, description="Tokens of the window reserved for the answer")
    options: Annotated[tuple[OptionName, ...], Field(strict=False)] = Field(
        (), description="Keys of `hints.options` that are passed through"
    )
    price: Price | None = Field(
        None,
        description="`{ input, output, cached, cache_write }` for a million tokens, in `telemetry.currency`; "
        "known models have one in USD",
    )
    api: Literal["chat_completions", "responses"] | None = Field(
        None, description="`chat_completions` or `responses`, for `openai://`"
    )
    capabilities: Mapping[CapabilityName, bool] = Field(
        default_factory=dict, description="Corrections to the assumed capabilities, as `{ schema = true }`"
    )
    proxy: ProxySetting | None = Field(None, description="Proxy URL, instead of the one that the environment names")
    ca_file: ReadableFile | None = Field(
        None, description="PEM file of trusted certificate authorities, instead of those of the system"
    )
    headers: HeaderSettings = Field(
        default_factory=dict, description="Headers added to each request; values are treated as secrets"
    )
    max_connections: Positive = Field(
        256, description="Attempts on this engine that run at the same time; executions that wait share the next ones"
    )

    @property
    def api_key(self) -> Secret:
        """Return the credential from either source; an empty one if the endpoint needs none."""
        return self.api_key_env or self.api_key_file or Secret(None)


def _rehearsal() -> dict[str, EngineSettings]:
    return {"rehearsal": EngineSettings(model=ModelUrl.parse("rehearsal://"))}


class RouteSettings(Table):
    """Engines in the order of failover; a list may stand for the whole table.

    `on_content_failure` selects the engine that is asked again after a rejected answer: the same one or the next.
    """

    engines: Annotated[tuple[str, ...], Field(strict=False)] = Field(description="Engines in the order of failover")
    on_content_failure: Literal["stay", "next"] = Field(
        "stay", description="Engine that is asked after a rejected answer: `stay` asks the same, `next` the next"
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_list(cls, given: object) -> object:
        match given:
            case list() | tuple():
                return {"engines": given}
            case dict() | RouteSettings():
                return given
            case _:
                raise ValueError("must be a list of engines, or a table that has one")


class Settings(Table):
    """The whole configuration. There is always an engine, and always a route `default`.

    Without `[engines]` the built-in rehearsal engine answers. A missing route `default` consists of all engines in file
    order.
    """

    server: ServerSettings = Field(default_factory=ServerSettings)
    storage: StorageSettings = Field(default_factory=StorageSettings)
    queue: QueueSettings = Field(default_factory=QueueSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    grammars: GrammarSettings = Field(default_factory=GrammarSettings)
    prompts: PromptSettings = Field(default_factory=PromptSettings)
    sessions: SessionSettings = Field(default_factory=SessionSettings)
    skills: SkillSettings = Field(default_factory=SkillSettings)
    failover: FailoverSettings = Field(default_factory=FailoverSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    tenants: Mapping[TenantName, TenantSettings] = Field(default_factory=dict)
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
    _proxies: ProxyEnvironment = PrivateAttr(default_factory=ProxyEnvironment)
    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _directory: Path = PrivateAttr(default=Path())
    _child_environment: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def is_rehearsal(self) -> bool:
        """Return True if no engine is configured, so that the built-in one answers."""
        return "engines" not in self.model_fields_set

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Return the accepted Host headers; with authentication, a request that another page forges has no key."""
        is_open = self.auth.mode != "none" and "allowed_hosts" not in self.server.model_fields_set
        return ("*",) if is_open else self.server.allowed_hosts

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings about the sources of the settings."""
        return self._warnings

    @property
    def directory(self) -> Path:
        """Return the directory of the configuration file, or the current one if there is no file."""
        return self._directory

    @property
    def child_environment(self) -> Mapping[str, str]:
        """Return the variables that programs inherit: PATH, LANG and TZ."""
        return self._child_environment

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
        self._warnings = tuple(context.get("warnings", ()))
        self._directory = context.get("directory", Path())
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


_CONNECTION_KEYS = ("base_url", "api_key_env", "api_key_file", "proxy", "ca_file", "headers")


def _listener_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.auth.mode == "none" and not is_loopback(settings.server.host):
        message = 'must be loopback (127.0.0.1, ::1 or localhost) while auth.mode is "none"'
        yield "server.host", f'{message}; set auth.mode to "keys" to listen on a network'
    if settings.server.metrics_port is not None and settings.server.metrics_port == settings.server.port:
        yield "server.metrics_port", "must differ from server.port"


def _auth_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from auth_errors(settings.auth)
    yield from memory_errors(settings.memory, settings.engines)


def _engine_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    for name, engine in settings.engines.items():
        here = f"engines.{name}"
        if engine.response_reserve >= engine.context_window:
            yield f"{here}.response_reserve", f"must be less than {here}.context_window"
        if engine.api_key_env and engine.api_key_file:
            yield f"{here}.api_key_file", f"must not be set together with {here}.api_key_env"
        if engine.api is not None and not SCHEMES[engine.model.scheme].has_apis:
            yield f"{here}.api", f"has no meaning for {engine.model.scheme}://"
        if len(set(engine.options)) < len(engine.options):
            yield f"{here}.options", "must not name an option twice"
        if engine.model.is_offline:
            given = (key for key in _CONNECTION_KEYS if getattr(engine, key))
            yield from ((f"{here}.{key}", f"has no meaning for {engine.model.scheme}://") for key in given)


def _route_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    for name, route in settings.routes.items():
        here = f"routes.{name}"
        if name in settings.engines:
            yield here, f"must not have the name of engines.{name}; a route {DEFAULT_ROUTE} always exists"
        if not route.engines:
            yield f"{here}.engines", "must name an engine"
        if len(set(route.engines)) < len(route.engines):
            yield f"{here}.engines", "must not name an engine twice"
        for position, engine in enumerate(route.engines):
            if engine not in settings.engines:
                closest = closest_name(engine, settings.engines)
                yield f"{here}.engines.{position}", f"must name an engine; did you mean {closest}?"


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


def _guard_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    yield from guard_errors(settings.guardrails, settings.routes, settings.engines, settings.agents)


_CONSISTENCY_CHECKS = (
    _listener_errors,
    _auth_errors,
    _engine_errors,
    _route_errors,
    _planner_errors,
    _agent_errors,
    _guard_errors,
)
