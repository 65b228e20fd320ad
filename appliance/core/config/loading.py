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

from appliance.core import yaml12
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .backup import Backup
from .checks import check
from .mail import Mail
from .master_key import VARIABLE, MasterKey
from .passwords import Passwords
from .quotas import Quotas, SandboxTenants
from .sections import (
    Acme,
    Approvals,
    Audit,
    Authority,
    Blobs,
    Connectors,
    Console,
    Demo,
    Domains,
    Egress,
    Folders,
    Formats,
    Limits,
    Logs,
    Metrics,
    Otlp,
    Queue,
    Retention,
    Sandbox,
    Scan,
    Server,
    Storage,
    Tls,
    WebApps,
)  # fmt: skip
from .sign_in import SecondFactor, SignIn
from .values import convert

__all__ = ["Config", "Domains", "environment", "load_config", "sections", "setting_names"]


@dataclass(frozen=True)
class Config:
    """All settings, grouped in sections."""

    server: Server = dataclasses.field(default_factory=Server)
    domains: Domains = dataclasses.field(default_factory=Domains)
    tls: Tls = dataclasses.field(default_factory=Tls)
    acme: Acme = dataclasses.field(default_factory=Acme)
    storage: Storage = dataclasses.field(default_factory=Storage)
    master_key: MasterKey = dataclasses.field(default_factory=MasterKey)
    blobs: Blobs = dataclasses.field(default_factory=Blobs)
    backup: Backup = dataclasses.field(default_factory=Backup)
    sandbox: Sandbox = dataclasses.field(default_factory=Sandbox)
    formats: Formats = dataclasses.field(default_factory=Formats)
    scan: Scan = dataclasses.field(default_factory=Scan)
    queue: Queue = dataclasses.field(default_factory=Queue)
    limits: Limits = dataclasses.field(default_factory=Limits)
    quotas: Quotas = dataclasses.field(default_factory=Quotas)
    sandbox_tenants: SandboxTenants = dataclasses.field(default_factory=SandboxTenants)
    webapps: WebApps = dataclasses.field(default_factory=WebApps)
    retention: Retention = dataclasses.field(default_factory=Retention)
    egress: Egress = dataclasses.field(default_factory=Egress)
    folders: Folders = dataclasses.field(default_factory=Folders)
    connectors: Connectors = dataclasses.field(default_factory=Connectors)
    console: Console = dataclasses.field(default_factory=Console)
    sign_in: SignIn = dataclasses.field(default_factory=SignIn)
    second_factor: SecondFactor = dataclasses.field(default_factory=SecondFactor)
    passwords: Passwords = dataclasses.field(default_factory=Passwords)
    mail: Mail = dataclasses.field(default_factory=Mail)
    approvals: Approvals = dataclasses.field(default_factory=Approvals)
    authority: Authority = dataclasses.field(default_factory=Authority)
    logs: Logs = dataclasses.field(default_factory=Logs)
    metrics: Metrics = dataclasses.field(default_factory=Metrics)
    audit: Audit = dataclasses.field(default_factory=Audit)
    otlp: Otlp = dataclasses.field(default_factory=Otlp)
    demo: Demo = dataclasses.field(default_factory=Demo)

    @property
    def origins(self) -> Mapping[str, str]:
        """The origin (file, variable or flag) of each setting without its default value, by `section.name`."""
        origins: Mapping[str, str] = getattr(self, "_origins", {})
        return origins

    @property
    def warnings(self) -> Sequence[str]:
        """A warning for each environment variable that looks like a setting but is not one."""
        warnings: Sequence[str] = getattr(self, "_warnings", ())
        return warnings

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
        """The port as `:8080`, or empty for the scheme's default port."""
        port = self.server.public_port or self.server.port
        return "" if port == (80 if self.scheme == "http" else 443) else f":{port}"

    @property
    def scheme(self) -> str:
        """The scheme of the addresses shown to people; behind a trusted proxy, HTTPS is assumed."""
        return "https" if self.tls_mode != "off" or self.server.trusted_proxies else "http"

    @property
    def base_url(self) -> str:
        """Address of the base host, without a trailing slash."""
        return f"{self.scheme}://{self.domains.base}{self.port_suffix}"

    def webapp_url(self, tenant: str, app: str, version: int | None = None) -> str:
        """The address of a WebApp, or of the preview of one version; without a trailing slash."""
        preview = "" if version is None else f"v{version}-"
        return f"{self.scheme}://{preview}{app}--{tenant}.{self.domains.content}{self.port_suffix}"

    def cdn_url(self, tenant: str) -> str:
        """The address of a tenant's public documents and shares, without a trailing slash."""
        return self.webapp_url(tenant, "cdn")

    def tenant_url(self, tenant: str) -> str:
        """The address of a tenant, without a trailing slash."""
        return f"{self.scheme}://{tenant}.{self.domains.base}{self.port_suffix}"


# Short names for variables that people type often, and variables that are not settings of the service.
_SHORT = {"GOS_DATA": "storage.data", "GOS_HOST": "server.host", "GOS_PORT": "server.port", "GOS_RUNTIMES": "sandbox.runtimes"}
_NOT_SETTINGS = frozenset({VARIABLE, "GOS_CONFIG", "GOS_API_KEY", "GOS_URL", "GOS_NPM", "GOS_CACHE"})


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def sections() -> dict[str, type]:
    """The sections of the configuration, as name -> class."""
    return {f.name: typing.cast(type, f.type) for f in dataclasses.fields(Config)}


def environment(name: str) -> str | None:
    """An environment variable that is not a setting of the service (GOS_CONFIG, GOS_URL, …), or None."""
    return os.environ.get(name) or None


def environment_names() -> list[str]:
    """The environment variables that do not belong to the service."""
    return [name for name in os.environ if not name.startswith("GOS_")]


def setting_names() -> list[str]:
    """The names of all settings, as `section.name`."""
    return [f"{section}.{f.name}" for section, cls in sections().items() for f in dataclasses.fields(cls)]


def _unknown(name: str, where: str) -> ConfigInvalid:
    return ConfigInvalid(Sentence(
        "%(where)s: unknown setting %(name)s; did you mean %(nearest)s?",
        where=where, name=repr(name), nearest=repr(_nearest(name)),
    ))


def _nearest(name: str) -> str:
    return difflib.get_close_matches(name, setting_names(), n=1, cutoff=0.0)[0]


def _warning(variable: str) -> str:
    """The warning for an unknown variable.  It is not an error, because a cluster may set variables with the same prefix."""
    near = _nearest(_from_variable(variable))
    written = next((short for short, name in _SHORT.items() if name == near), f"GOS_{near.replace('.', '_').upper()}")
    return f"the variable {variable} is not a setting and is ignored; did you mean {written} (for {near})?"


def load_config(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """Load the settings from `defaults`, `file`, `GOS_*` variables and `flags`; the later override (keys are `section.name`).

    ConfigInvalid names the file or variable, the setting and its nearest match; unknown variables are in `Config.warnings`.
    """
    values = {name: (value, f"default {name}") for name, value in (defaults or {}).items()}
    names, warnings = set(setting_names()), []
    if file is not None:
        values |= _read_file(file)
    for variable, text in sorted((os.environ if environment is None else environment).items()):
        if variable.startswith("GOS_") and variable not in _NOT_SETTINGS:
            name = _SHORT.get(variable) or _from_variable(variable)
            if name in names:
                values[name] = (text, f"environment {variable}")
            else:
                warnings.append(_warning(variable))
    values |= {name: (value, f"flag {name}") for name, value in (flags or {}).items() if value is not None}
    config = _build(values)
    object.__setattr__(config, "_warnings", tuple(warnings))
    return config


def _read_file(file: Path) -> dict[str, tuple[Any, str]]:
    try:
        document = yaml12.load(file.read_text("utf8")) or {}
    except OSError as error:
        raise ConfigInvalid(Sentence("%(file)s: cannot be read (%(strerror)s)", file=file, strerror=error.strerror)) from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(Sentence("%(file)s: is not UTF-8 text", file=file)) from error
    except yaml12.YamlInvalid as error:
        message = Sentence("%(file)s: line %(line)s: %(message)s", file=file, line=error.line, message=error.message)
        raise ConfigInvalid(message) from error
    if not isinstance(document, dict):
        raise ConfigInvalid(Sentence("%(file)s: must be a mapping of sections", file=file))
    values: dict[str, tuple[Any, str]] = {}
    for section, settings in document.items():
        if section not in sections():
            raise _unknown(str(section), str(file))
        if not isinstance(settings, dict):
            raise ConfigInvalid(Sentence("%(file)s: section %(section)s must be a mapping of settings", file=file, section=section))
        values |= {f"{section}.{name}": (value, str(file)) for name, value in settings.items()}
    return values


def _from_variable(variable: str) -> str:
    text = variable.removeprefix("GOS_").lower()
    section = next((each for each in sections() if text.startswith(f"{each}_")), text.partition("_")[0])
    return f"{section}.{text.removeprefix(section).removeprefix('_')}"


def _build(values: Mapping[str, tuple[Any, str]]) -> Config:
    names = set(setting_names())
    for name, (_, where) in values.items():
        if name not in names:
            raise _unknown(name, where)
    instances: dict[str, Any] = {}
    for section, cls in sections().items():
        arguments = {
            f.name: convert(f"{section}.{f.name}", *_pick(values[f"{section}.{f.name}"], f.type))
            for f in dataclasses.fields(cls)
            if f"{section}.{f.name}" in values
        }
        instances[section] = cls(**arguments)
    config = Config(**instances)
    object.__setattr__(config, "_origins", {name: where for name, (_, where) in values.items()})
    check(config)
    return config


def _pick(entry: tuple[Any, str], kind: Any) -> tuple[Any, Any, str]:
    return entry[0], kind, entry[1]
