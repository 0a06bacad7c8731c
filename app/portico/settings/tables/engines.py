"""Tables of engines with their deployments, of the routes between them, and of the attempts of an inference."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib.util import find_spec
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from portico.adapters.engines.openai.vendors import VENDORS, vendor_of
from portico.capabilities.models.catalogue import DEFAULT_ROUTE
from portico.domain.access.limits import AccessLimits
from portico.domain.contract.constrained_types import CostRate, UnitRate
from portico.domain.model_call import CAUSES, AttemptFailureReason
from portico.ports.engine_schemes import DEFAULT_CONTEXT_WINDOW, SCHEMES
from portico.ports.model import EngineCapabilities
from portico.settings.known_models import KnownModel, known_model, known_names
from portico.settings.tables.connection import HeaderSettings, ProxySetting, ReadableFile
from portico.settings.values import (
    BaseUrl,
    ModelUrl,
    ModelUrlText,
    Natural,
    Positive,
    Seconds,
    Secret,
    SecretFromFile,
    SecretFromVariable,
    Table,
    Wait,
    closest_name,
)


def _known_capability(name: str) -> str:
    known = [field.name for field in fields(EngineCapabilities)]
    if name not in known:
        raise ValueError(f"is not known; did you mean {closest_name(name, known)}?")
    return name


CapabilityName = Annotated[str, AfterValidator(_known_capability)]
EngineNames = Annotated[tuple[str, ...], Field(strict=False)]
OptionName = Annotated[str, StringConstraints(min_length=1)]
DeploymentName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,32}$")]
_CONNECTION_KEYS = ("base_url", "api_key_env", "api_key_file", "proxy", "ca_file", "headers")
_CAP_KEYS = ("requests", "tokens", "cost")
_SCHEME_KEYS = frozenset({"base_url", "api", "api_key_env", "api_key_file", "vendor", "auth"})
"""Keys of an engine that its deployments of another scheme do not take over: they are for another provider."""
_KEY_SETTINGS = frozenset({"api_key_env", "api_key_file"})
_OWN_KEYS = frozenset({"weight", "account", "concurrency", *_CAP_KEYS})
"""Keys of a deployment that are no settings of its endpoint."""


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


def _known_vendor(name: str) -> str:
    if name not in VENDORS:
        raise ValueError(f"is not known; did you mean {closest_name(name, VENDORS)}?")
    return name


VendorName = Annotated[str, AfterValidator(_known_vendor)]


def _default_vendor(validated: Mapping[str, Any]) -> str | None:
    """Return the vendor whose server the engine asks; None for a scheme that has one vendor only."""
    model: ModelUrl | None = validated.get("model")
    return vendor_of(validated.get("base_url")) if model is not None and SCHEMES[model.scheme].has_vendors else None


def _known_model(engine: Mapping[str, Any]) -> KnownModel | None:
    """Return the facts about the model that an engine asks, or that it is known as."""
    known_as: ModelUrl | None = engine.get("known_as")
    if known_as is not None:
        return known_model(_table_of_models(known_as), known_as.model)
    model: ModelUrl | None = engine.get("model")
    return None if model is None else known_model(_table_of_models(model, engine.get("vendor")), model.model)


def _table_of_models(model: ModelUrl, vendor: str | None = None) -> str | None:
    return SCHEMES[model.scheme].known_models if vendor is None else VENDORS[vendor].prices


def _default_window(validated: Mapping[str, Any]) -> int:
    """Return the context window of a known model, else the default of its scheme."""
    model: ModelUrl | None = validated.get("model")
    known = _known_model(validated)
    if known is not None and known.context_window is not None:
        return known.context_window
    return DEFAULT_CONTEXT_WINDOW if model is None else SCHEMES[model.scheme].context_window


def _default_prompt_cache(validated: Mapping[str, Any]) -> Literal["auto", "off"]:
    """Return `auto` where the engine takes what says what to cache."""
    model: ModelUrl | None = validated.get("model")
    return "auto" if model is not None and SCHEMES[model.scheme].marks_prompt_caches else "off"


class DeploymentSettings(Table):
    """One key, account, region or host behind an engine's name. What it leaves out is the engine's.

    A key of its own replaces both of the engine's. One of another scheme takes neither key, address, `api` nor
    `vendor` over.
    """

    model: ModelUrlText | None = Field(None, description="Model URL, if it is another one")
    base_url: BaseUrl | None = Field(None, description="Base URL of the provider")
    api: Literal["chat_completions", "responses"] | None = Field(
        None, description="`chat_completions` or `responses`, for `openai://`"
    )
    api_key_env: SecretFromVariable | None = Field(None, description="Environment variable that holds the credential")
    api_key_file: SecretFromFile | None = Field(
        None, description="File that holds the credential; read again when it changes"
    )
    auth: Literal["entra"] | None = Field(None, description="`entra` for `azure://`, as that of an engine")
    proxy: ProxySetting | None = Field(None, description="Proxy URL")
    ca_file: ReadableFile | None = Field(None, description="PEM file of trusted certificate authorities")
    headers: HeaderSettings = Field(default_factory=dict, description="Headers added to each request")
    price: Price | None = Field(None, description="Prices, as those of an engine")
    vendor: VendorName | None = Field(None, description="Vendor of `openai://`, as that of an engine")
    weight: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Share of the inferences, beside the others'")
    account: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = Field(
        None,
        description="Account at the provider; those of one account read each other's encrypted thoughts. By default "
        "each has its own",
    )
    requests: UnitRate | None = Field(None, description="Attempts that may begin, as `600/60`")
    tokens: UnitRate | None = Field(None, description="Tokens of all attempts, as `200000/60`")
    cost: CostRate | None = Field(None, description="Cost of all attempts in `telemetry.currency`, as `5.00/86400`")
    concurrency: Positive | None = Field(
        None,
        description="Attempts that run at the same time, on all replicas together; by default the engine's "
        "`max_connections` on each",
    )

    @property
    def limits(self) -> AccessLimits:
        """Return the caps."""
        return AccessLimits(self.requests, self.tokens, self.cost, self.concurrency)


class EngineSettings(Table):
    """Model endpoint.

    `api` chooses between the two of OpenAI; by default the name of the model decides. `vendor` says whose dialect of
    them the server speaks. `capabilities` corrects those that the scheme implies. `proxy` replaces the proxy of the
    environment, `ca_file` the certificate authorities of the system. `headers` are added to each request and replace
    those of the same name.
    """

    model: ModelUrlText = Field(description="Model URL, see above")
    base_url: BaseUrl | None = Field(None, description="Base URL of the provider, as its SDK takes it")
    api_key_env: SecretFromVariable | None = Field(None, description="Environment variable that holds the credential")
    api_key_file: SecretFromFile | None = Field(
        None, description="File that holds the credential; read again when it changes"
    )
    vendor: VendorName | None = Field(
        default_factory=_default_vendor,
        description="Vendor whose server an `openai://` engine asks, see [engines](engines.md#vendors); by default "
        "that of the host of `base_url`, else `generic`",
    )
    known_as: ModelUrlText | None = Field(
        None,
        description="Known model that the engine asks under another name, as `openai://gpt-4o-mini`: its window, "
        "prices and capabilities hold",
    )
    auth: Literal["entra"] | None = Field(
        None, description="`entra` asks Microsoft Entra for tokens instead of sending a key, for `azure://`"
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
        None, description="`chat_completions` or `responses`, for `openai://` and `azure://`"
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
    prompt_cache: Literal["auto", "off"] = Field(
        default_factory=_default_prompt_cache,
        description="`auto` asks the provider to cache prompts that will be read again, and is the default of "
        "`openai://`, where the vendor takes it, of `azure://`, `bedrock://`, `anthropic://` and `vertex://`; "
        "`off` asks for nothing",
    )
    requests: UnitRate | None = Field(None, description="Attempts on this engine that may begin, as `600/60`")
    tokens: UnitRate | None = Field(None, description="Tokens of all its attempts, as `200000/60`")
    cost: CostRate | None = Field(None, description="Cost of all its attempts in `telemetry.currency`, as `5.00/86400`")
    balance: Literal["least_busy", "priority"] = Field(
        "least_busy",
        description="Order of its deployments: `least_busy` by weight and running attempts, `priority` as here",
    )
    deployments: Annotated[Mapping[DeploymentName, DeploymentSettings], Field(max_length=64)] = Field(
        default_factory=dict, description="Keys, accounts, regions or hosts of this engine by name, see below"
    )

    @property
    def api_key(self) -> Secret:
        """Return the credential from either source; an empty one if the endpoint needs none."""
        return self.api_key_env or self.api_key_file or Secret(None)

    @property
    def identity(self) -> ModelUrl:
        """Return the model whose facts hold."""
        return self.known_as or self.model

    @property
    def known(self) -> KnownModel | None:
        """Return the facts about the model; None if it is not known."""
        return _known_model({"known_as": self.known_as, "model": self.model, "vendor": self.vendor})

    @property
    def limits(self) -> AccessLimits:
        """Return the caps."""
        return AccessLimits(self.requests, self.tokens, self.cost)

    def endpoint(self, name: str) -> "EngineSettings":
        """Return the settings of a deployment as those of an engine without any."""
        deployment = self.deployments[name]
        own = {key: getattr(deployment, key) for key in deployment.model_fields_set - _OWN_KEYS}
        taken = self.model_fields_set - {"deployments", "balance", *_CAP_KEYS}
        if {"auth", *_KEY_SETTINGS} & own.keys():
            taken -= {"auth", *_KEY_SETTINGS}
        if own.get("model", self.model).scheme != self.model.scheme:
            taken -= _SCHEME_KEYS
        return EngineSettings.model_validate({**{key: getattr(self, key) for key in taken}, **own})


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
        5,
        description="Failures within the window that open the circuit breaker, if they are more than half of the "
        "attempts in it; 0 turns it off",
    )
    breaker_window: Seconds = Field(30, description="Window in which failures are counted")
    breaker_cooldown: Seconds = Field(15, description="Time until an open breaker allows a probe")
    retry_budget: Annotated[float, Field(ge=0, le=1)] = Field(
        0.2, description="Share of the attempts on an engine in the last 10 s that may follow the first of an inference"
    )
    retry_floor: Natural = Field(10, description="Such attempts on an engine that are always allowed within 10 s")
    max_deployments: Annotated[int, Field(ge=1, le=64)] = Field(
        3, description="Deployments of an engine that one inference may try"
    )


class CauseSettings(Table):
    """Engines to ask after an attempt has failed for a cause, in order."""

    context_exceeded: EngineNames = Field((), description="Engines for a context that exceeds the window of others")
    content_filtered: EngineNames = Field((), description="Engines for what the filter of another has stopped")

    def lists(self) -> Mapping[AttemptFailureReason, tuple[str, ...]]:
        """Return the engines by cause, without the causes that have none."""
        return {cause: names for cause in CAUSES if (names := getattr(self, cause))}


class RouteSettings(Table):
    """Engines in the order of failover; a list may stand for the whole table.

    `on_content_failure` selects the engine that is asked again after a rejected answer: the same one or the next. `on`
    names the engines that replace the others after a failure for a cause, which ends the route otherwise.
    """

    engines: EngineNames = Field(description="Engines in the order of failover")
    on: CauseSettings = Field(
        default_factory=CauseSettings,
        description="`{ context_exceeded, content_filtered }`: engines to ask instead after a failure for that cause",
    )
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


def engine_errors(engines: Mapping[str, EngineSettings]) -> Iterator[tuple[str, str]]:
    """Yield the errors within engines, each with its key."""
    for name, engine in engines.items():
        here = f"engines.{name}"
        if engine.response_reserve >= engine.context_window:
            yield f"{here}.response_reserve", f"must be less than {here}.context_window"
        if engine.api_key_env and engine.api_key_file:
            yield f"{here}.api_key_file", f"must not be set together with {here}.api_key_env"
        yield from _scheme_errors(here, engine)
        if engine.prompt_cache == "auto" and not SCHEMES[engine.model.scheme].marks_prompt_caches:
            yield f"{here}.prompt_cache", f"has no meaning for {engine.model.scheme}://"
        if len(set(engine.options)) < len(engine.options):
            yield f"{here}.options", "must not name an option twice"
        if engine.model.is_offline:
            given = (key for key in (*_CONNECTION_KEYS, *_CAP_KEYS) if getattr(engine, key))
            yield from ((f"{here}.{key}", f"has no meaning for {engine.model.scheme}://") for key in given)
        yield from _balance_errors(here, engine)


def _balance_errors(here: str, engine: EngineSettings) -> Iterator[tuple[str, str]]:
    """Yield the errors of an engine's deployments and of their balance."""
    given = {"balance", "deployments"} & engine.model_fields_set
    if engine.model.is_offline:
        yield from ((f"{here}.{key}", f"has no meaning for {engine.model.scheme}://") for key in sorted(given))
    elif "deployments" in given and not engine.deployments:
        yield f"{here}.deployments", "must have a table for each deployment, as [engines.NAME.deployments.KEY]"
    elif "balance" in given and not engine.deployments:
        yield f"{here}.balance", f"has no meaning without {here}.deployments"
    else:
        yield from _deployment_errors(f"{here}.deployments", engine)


def _deployment_errors(here: str, engine: EngineSettings) -> Iterator[tuple[str, str]]:
    whole = {}
    for name, deployment in engine.deployments.items():
        scheme = (deployment.model or engine.model).scheme
        if SCHEMES[scheme].is_offline:
            yield f"{here}.{name}.model", f"must be the model of a provider, not {scheme}://"
            continue
        if deployment.api_key_env and deployment.api_key_file:
            yield f"{here}.{name}.api_key_file", f"must not be set together with {here}.{name}.api_key_env"
        whole[name] = engine.endpoint(name)
        yield from _scheme_errors(f"{here}.{name}", whole[name])
        if whole[name].response_reserve >= whole[name].context_window:
            yield f"{here}.{name}.model", "must have a context window above the engine's response_reserve"
    for (first, one), (second, other) in combinations(whole.items(), 2):
        if _is_same_endpoint(one, other):
            yield f"{here}.{second}", f"must differ from {here}.{first} in its model, address, key or headers"


def _is_same_endpoint(one: EngineSettings, other: EngineSettings) -> bool:
    """Return True if both ask the same model at the same address with the same credentials, by the same way."""
    plain = all(getattr(one, key) == getattr(other, key) for key in ("model", "base_url", "api", "auth", "ca_file"))
    proxies = {None if each.proxy is None else each.proxy.read() for each in (one, other)}
    headers = [{name.lower(): value.read() for name, value in each.headers.items()} for each in (one, other)]
    is_same_way = len(proxies) == 1 and headers[0] == headers[1]
    return plain and is_same_way and one.api_key.read() == other.api_key.read()


def _scheme_errors(here: str, engine: EngineSettings) -> Iterator[tuple[str, str]]:
    """Yield the errors of settings that only some schemes have."""
    scheme = SCHEMES[engine.model.scheme]
    if engine.api is not None and not scheme.has_apis:
        yield f"{here}.api", f"has no meaning for {engine.model.scheme}://"
    if "vendor" in engine.model_fields_set and not scheme.has_vendors:
        yield f"{here}.vendor", f"has no meaning for {engine.model.scheme}://"
    if engine.auth is not None and engine.model.scheme != "azure":
        yield f"{here}.auth", f"has no meaning for {engine.model.scheme}://"
    elif engine.auth is not None and engine.api_key.read():
        yield f"{here}.auth", f"must not be set together with {here}.api_key_env or {here}.api_key_file"
    missing = _missing_extra(engine)
    if missing is not None:
        yield f"{here}.{'auth' if engine.auth else 'model'}", f"install portico[{missing}]"
    if engine.known_as is not None and engine.known is None:
        yield f"{here}.known_as", f"is not a known model; {_closest_model(engine.known_as)}"


def _missing_extra(engine: EngineSettings) -> str | None:
    """Return the extra with the packages that the engine needs and that are not installed."""
    match engine.model.scheme:
        case "azure" if engine.auth == "entra":
            extra, package = "azure", "azure.identity"
        case "bedrock":
            extra, package = "aws", "botocore"
        case "vertex" if not engine.api_key.read():
            extra, package = "google", "google.auth"
        case _:
            return None
    return None if is_installed(package) else extra


def is_installed(package: str) -> bool:
    """Tell whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _closest_model(model: ModelUrl) -> str:
    names = known_names(_table_of_models(model))
    if not names:
        return f"none of {model.scheme}:// is known"
    return f"did you mean {model.scheme}://{closest_name(model.model, names)}?"


def route_errors(
    routes: Mapping[str, RouteSettings], engines: Mapping[str, EngineSettings]
) -> Iterator[tuple[str, str]]:
    """Yield the errors of routes, each with its key."""
    for name, route in routes.items():
        here = f"routes.{name}"
        if name in engines:
            yield here, f"must not have the name of engines.{name}; a route {DEFAULT_ROUTE} always exists"
        lists = {f"{here}.engines": route.engines}
        lists |= {f"{here}.on.{cause}": getattr(route.on, cause) for cause in route.on.model_fields_set}
        for key, names in lists.items():
            if not names:
                yield key, "must name an engine"
            if len(set(names)) < len(names):
                yield key, "must not name an engine twice"
            for position, engine in enumerate(names):
                if engine not in engines:
                    closest = closest_name(engine, engines)
                    yield f"{key}.{position}", f"must name an engine; did you mean {closest}?"
