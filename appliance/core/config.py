"""Configuration: typed, strict, from YAML, then `GOS_*` environment, then flags."""

import dataclasses
import difflib
import ipaddress
import os
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from . import yaml12
from .errors import ConfigInvalid


def _setting(default: Any, doc: str) -> Any:
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: tuple(default), metadata={"doc": doc})
    return dataclasses.field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class Server:
    """Where the appliance listens and how it shuts down."""

    host: str = _setting("127.0.0.1", "Address to listen on. Anything but loopback needs HTTPS for the console.")
    port: int = _setting(8080, "Port to listen on.")
    public_port: int = _setting(0, "Port in the addresses shown to people; 0 means the listening port.")
    tls: Literal["auto", "off", "internal", "files"] = _setting(
        "auto",
        "auto: plain HTTP on loopback, the built-in CA elsewhere. off: plain HTTP (behind a proxy that does HTTPS). "
        "internal: a certificate of the built-in CA. files: your own certificate.",
    )
    certificate: str = _setting("", "PEM file with the certificate chain, for tls: files.")
    private_key: str = _setting("", "PEM file with its private key, for tls: files.")
    trusted_proxies: tuple[str, ...] = _setting(
        [], "Networks (CIDR) of proxies whose X-Forwarded-For, -Proto and -Host are believed."
    )
    max_in_flight: int = _setting(256, "Requests worked on at once; beyond it callers get 503 with Retry-After.")
    shutdown_seconds: int = _setting(20, "How long a stop waits for requests and steps in progress.")


@dataclass(frozen=True)
class Domains:
    """Host names: `<tenant>.<base>` serves a tenant, `<app>--<tenant>.<content>` a WebApp."""

    base: str = _setting("localhost", "Domain of sign-in, API and console.")
    content: str = _setting("content.localhost", "Domain of WebApps and documents; in production another one.")


@dataclass(frozen=True)
class Storage:
    """Where data lives."""

    data: str = _setting("./data", "Folder of the database, the key file and everything else that must be kept.")
    database: str = _setting("", "Database URL; empty means SQLite in the data folder.")


@dataclass(frozen=True)
class Sandbox:
    """The processes in which step code runs."""

    runtimes: str = _setting("", "Folder of the prepared WebAssembly runtimes; empty means the installed one.")
    processes: int = _setting(2, "Sandbox processes; one per processor core is a good number.")
    slots: int = _setting(8, "Steps one sandbox process runs at once.")
    queue_seconds: int = _setting(60, "How long a step waits for a place in a sandbox process before it is tried again later.")
    first_user: int = _setting(
        65_100,
        "Started as root, each sandbox process becomes a user of its own: the first of 400 numbers that nobody else uses. "
        "0: they stay root, without capabilities.",
    )


@dataclass(frozen=True)
class Formats:
    """The worker processes in which files are read and written."""

    processes: int = _setting(2, "Files worked on at once.")
    memory_mb: int = _setting(256, "Memory of a file or ocr step that sets none, beside what the libraries take.")
    queue_seconds: int = _setting(60, "How long a step waits for a worker process before it is tried again later.")


@dataclass(frozen=True)
class Queue:
    """The workers that run executions."""

    workers: int = _setting(8, "Executions worked on at once by one process.")
    lease_seconds: int = _setting(30, "How long a silent worker on another host keeps an execution.")
    sweep_ms: int = _setting(500, "How often lost wake-ups, dead workers and due timers are looked for.")
    max_claims: int = _setting(20, "Claims without progress after which an execution fails as `system`.")


@dataclass(frozen=True)
class Limits:
    """Defaults of CONTRACT § 14."""

    json_body_kb: int = _setting(1024, "Largest JSON body.")
    json_depth: int = _setting(64, "Deepest nesting of a JSON body.")
    upload_mb: int = _setting(100, "Largest streamed upload.")
    archive_files: int = _setting(10_000, "Most files in an archive.")
    archive_mb: int = _setting(500, "Largest unpacked archive.")
    step_seconds: int = _setting(30, "Wall time of a step that sets none (at most 15 minutes).")
    step_memory_mb: int = _setting(64, "Memory of a step that sets none (at most 512).")
    step_output_kb: int = _setting(1024, "Largest output of a step.")
    step_answer_kb: int = _setting(8192, "Largest answer to a host call of a step; it is kept in the journal.")
    step_host_calls: int = _setting(1000, "Most host calls of a step.")
    step_call_seconds: int = _setting(60, "Time one call of step code to a foreign system may take, within the time of its step.")
    replay_seconds: int = _setting(60, "Longest replay of an execution.")
    execution_minutes: int = _setting(60, "Active time of an execution that sets none.")
    waiting_days: int = _setting(90, "Longest wait of an execution.")
    execution_steps: int = _setting(10_000, "Most step runs of an execution.")
    entity_kb: int = _setting(1024, "Largest entity.")
    query_rows: int = _setting(500, "Most rows a query answers at once.")
    rate_requests: int = _setting(600, "Requests a new API key may make per window.")
    rate_window_s: int = _setting(60, "Length of that window in seconds.")


@dataclass(frozen=True)
class Retention:
    """How long finished things are kept, in days."""

    executions_days: int = _setting(30, "Finished executions with their steps and journal.")
    logs_days: int = _setting(30, "Log lines.")
    audit_days: int = _setting(400, "The audit trail.")


@dataclass(frozen=True)
class Egress:
    """Which addresses connectors may reach beyond the public internet."""

    allow: tuple[str, ...] = _setting(
        [], "Otherwise forbidden targets, each `host`, `host:port`, `address:port` or CIDR: 10.1.0.0/16, erp.internal:443."
    )
    ca_file: str = _setting("", "PEM file with further certificate authorities that connectors trust.")


@dataclass(frozen=True)
class Folders:
    """Which folders of this machine connectors may use (in a container: mount them)."""

    allow: tuple[str, ...] = _setting(
        [],
        "Absolute folders, each with all that is in it; {tenant} stands for the tenant's id, without it every tenant may use the "
        "folder; :ro at the end allows only reading: /srv/exchange/{tenant}, /srv/catalogue:ro.",
    )
    quota_mb: int = _setting(1024, "Most that a folder may hold after a connector has written to it; 0 for no limit.")


@dataclass(frozen=True)
class Connectors:
    """The connector plugins."""

    reload: bool = _setting(False, "For development: changed files of editable plugins and of YAML connectors take effect at once.")


@dataclass(frozen=True)
class Console:
    """The web console."""

    provision: Literal["sandbox", "off"] = _setting(
        "sandbox", "What a signed-in person without a membership gets: a sandbox tenant of their own, or nothing."
    )
    session_hours: int = _setting(12, "How long a session lasts without use.")


@dataclass(frozen=True)
class Logs:
    """What the process itself logs to standard error."""

    level: Literal["debug", "info", "warning", "error"] = _setting("info", "Least level that is written.")
    format: Literal["json", "text"] = _setting("json", "One JSON object or one readable line per record.")


@dataclass(frozen=True)
class Demo:
    """Helps for trying the appliance out; all off in production."""

    order_system: bool = _setting(False, "Serve a small order system under /demo/ for the starter solution.")


@dataclass(frozen=True)
class Config:
    """All settings; sections are the attributes."""

    server: Server = Server()
    domains: Domains = Domains()
    storage: Storage = Storage()
    sandbox: Sandbox = Sandbox()
    formats: Formats = Formats()
    queue: Queue = Queue()
    limits: Limits = Limits()
    retention: Retention = Retention()
    egress: Egress = Egress()
    folders: Folders = Folders()
    connectors: Connectors = Connectors()
    console: Console = Console()
    logs: Logs = Logs()
    demo: Demo = Demo()

    @property
    def data(self) -> Path:
        return Path(self.storage.data).resolve()

    @property
    def database_url(self) -> str:
        return self.storage.database or f"sqlite:///{self.data / 'gos.db'}"

    @property
    def on_loopback(self) -> bool:
        return self.server.host == "localhost" or _is_loopback(self.server.host)

    @property
    def tls_mode(self) -> Literal["off", "internal", "files"]:
        if self.server.tls == "auto":
            return "off" if self.on_loopback else "internal"
        return self.server.tls

    @property
    def port_suffix(self) -> str:
        """`:8080`, or nothing for the scheme's own port."""
        port = self.server.public_port or self.server.port
        return "" if port == (80 if self.scheme == "http" else 443) else f":{port}"

    @property
    def scheme(self) -> str:
        """Scheme of the addresses shown to people: a trusted proxy is taken to do HTTPS."""
        return "https" if self.tls_mode != "off" or self.server.trusted_proxies else "http"

    def webapp_url(self, tenant: str, app: str) -> str:
        """Where a WebApp is served, without a trailing slash."""
        return f"{self.scheme}://{app}--{tenant}.{self.domains.content}{self.port_suffix}"

    def tenant_url(self, tenant: str) -> str:
        """`base_url` of a tenant, without a trailing slash."""
        return f"{self.scheme}://{tenant}.{self.domains.base}{self.port_suffix}"


# Environment names that are short because people type them, and names that are not settings of the service.
_SHORT = {"GOS_DATA": "storage.data", "GOS_HOST": "server.host", "GOS_PORT": "server.port", "GOS_RUNTIMES": "sandbox.runtimes"}
_NOT_SETTINGS = frozenset({"GOS_CONFIG", "GOS_API_KEY", "GOS_URL", "GOS_NPM", "GOS_CACHE"})


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _sections() -> dict[str, type]:
    return {f.name: typing.cast(type, f.type) for f in dataclasses.fields(Config)}


def environment(name: str) -> str | None:
    """A variable of the environment that is no setting of the service (GOS_CONFIG, GOS_URL, …), or None."""
    return os.environ.get(name) or None


def setting_names() -> list[str]:
    """Every setting as `section.name`."""
    return [f"{section}.{f.name}" for section, cls in _sections().items() for f in dataclasses.fields(cls)]


def _unknown(name: str, where: str) -> ConfigInvalid:
    near = difflib.get_close_matches(name, setting_names(), n=1, cutoff=0.0)
    return ConfigInvalid(f"{where}: unknown setting {name!r}; the nearest known one is {near[0]!r}")


def _convert(name: str, value: Any, kind: Any, where: str) -> Any:
    """`value` as the setting's type; text (from the environment) is read as that type."""
    if typing.get_origin(kind) is Literal:
        if value in typing.get_args(kind):
            return value
        raise ConfigInvalid(f"{where}: {name} must be one of {', '.join(typing.get_args(kind))}, not {value!r}")
    if kind is int and isinstance(value, str) and value.strip().lstrip("-").isdigit():
        value = int(value)
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        value = value.lower() in ("true", "1")
    if typing.get_origin(kind) is tuple:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            return tuple(value)
        raise ConfigInvalid(f"{where}: {name} must be a list of texts, not {value!r}")
    if type(value) is not kind or (kind is int and value < 0):
        raise ConfigInvalid(f"{where}: {name} must be {_type_name(kind)}, not {value!r}")
    return value


def _type_name(kind: Any) -> str:
    names = {int: "a whole number, zero or more", bool: "true or false", str: "a text"}
    return names.get(kind, str(kind))


def load_config(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Config:
    """Settings of `file`, overridden by `GOS_*` of the environment, overridden by `flags` (`section.name` keys).

    ConfigInvalid names the file or variable, the setting and, for an unknown one, the nearest known.
    """
    values: dict[str, tuple[Any, str]] = {}
    if file is not None:
        values |= _read_file(file)
    for variable, text in sorted((os.environ if environment is None else environment).items()):
        if variable.startswith("GOS_") and variable not in _NOT_SETTINGS:
            values[_SHORT.get(variable) or _from_variable(variable)] = (text, f"environment {variable}")
    values |= {name: (value, f"flag {name}") for name, value in (flags or {}).items() if value is not None}
    return _build(values)


def _read_file(file: Path) -> dict[str, tuple[Any, str]]:
    try:
        document = yaml12.load(file.read_text("utf8")) or {}
    except OSError as error:
        raise ConfigInvalid(f"{file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"{file}: is not UTF-8 text") from error
    except yaml12.YamlInvalid as error:
        raise ConfigInvalid(f"{file}: line {error.line}: {error.message}") from error
    if not isinstance(document, dict):
        raise ConfigInvalid(f"{file}: must be a mapping of sections")
    values: dict[str, tuple[Any, str]] = {}
    for section, settings in document.items():
        if section not in _sections():
            raise _unknown(str(section), str(file))
        if not isinstance(settings, dict):
            raise ConfigInvalid(f"{file}: section {section} must be a mapping of settings")
        values |= {f"{section}.{name}": (value, str(file)) for name, value in settings.items()}
    return values


def _from_variable(variable: str) -> str:
    section, _, name = variable.removeprefix("GOS_").lower().partition("_")
    return f"{section}.{name}"


def _build(values: Mapping[str, tuple[Any, str]]) -> Config:
    known = set(setting_names())
    for name, (_, where) in values.items():
        if name not in known:
            raise _unknown(name, where)
    sections: dict[str, Any] = {}
    for section, cls in _sections().items():
        chosen = {
            f.name: _convert(f"{section}.{f.name}", *_pick(values[f"{section}.{f.name}"], f.type))
            for f in dataclasses.fields(cls)
            if f"{section}.{f.name}" in values
        }
        sections[section] = cls(**chosen)
    config = Config(**sections)
    _check(config)
    return config


def _pick(entry: tuple[Any, str], kind: Any) -> tuple[Any, Any, str]:
    return entry[0], kind, entry[1]


def _check(config: Config) -> None:
    if config.server.tls == "files" and not (config.server.certificate and config.server.private_key):
        raise ConfigInvalid("server.tls is files, so server.certificate and server.private_key must name PEM files")
    for network in config.server.trusted_proxies:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ConfigInvalid(f"server.trusted_proxies: {network!r} is not a network such as 10.0.0.0/8") from error
    if config.domains.base == config.domains.content:
        raise ConfigInvalid("domains.base and domains.content must differ: WebApps must not share the console's host")


def example() -> str:
    """The text of config.example.yaml: every setting with its default, commented by its documentation."""
    lines = ["# Every setting with its default. Generated by `gos config example`; a test compares.", ""]
    for section, cls in _sections().items():
        lines += [f"# {(cls.__doc__ or '').splitlines()[0]}", f"{section}:"]
        for field in dataclasses.fields(cls):
            default = field.default if field.default is not dataclasses.MISSING else []
            lines += [f"  # {field.metadata['doc']}{_choices(field.type)}", f"  {field.name}: {_yaml(default)}"]
        lines.append("")
    return "\n".join(lines)


def _choices(kind: Any) -> str:
    return f" ({' | '.join(typing.get_args(kind))})" if typing.get_origin(kind) is Literal else ""


def _yaml(value: str | int | bool | Sequence[str]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return "[]" if not value and not isinstance(value, str) else f'"{value}"'
