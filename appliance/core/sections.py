"""The sections of the configuration: every setting with its type, its default and its documentation."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal


def setting(default: Any, doc: str, *, secret: bool = False) -> Any:
    """A setting with its default and the sentence that documents it; a `secret` is not shown in what is printed of a section."""
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: tuple(default), metadata={"doc": doc}, repr=not secret)
    return dataclasses.field(default=default, metadata={"doc": doc}, repr=not secret)


@dataclass(frozen=True)
class Server:
    """Where the appliance listens and how it shuts down."""

    host: str = setting("127.0.0.1", "Address to listen on. Anything but loopback needs HTTPS for the console.")
    port: int = setting(8080, "Port to listen on.")
    public_port: int = setting(0, "Port in the addresses shown to people; 0 means the listening port.")
    tls: Literal["auto", "off", "internal", "files"] = setting(
        "auto",
        "auto: plain HTTP on loopback, the built-in CA elsewhere. off: plain HTTP (behind a proxy that does HTTPS). "
        "internal: a certificate of the built-in CA. files: your own certificate.",
    )
    certificate: str = setting("", "PEM file with the certificate chain, for tls: files.")
    private_key: str = setting("", "PEM file with its private key, for tls: files.")
    trusted_proxies: tuple[str, ...] = setting(
        [], "Networks (CIDR) of proxies whose X-Forwarded-For, -Proto and -Host are believed."
    )
    max_in_flight: int = setting(256, "Requests worked on at once; beyond it callers get 503 with Retry-After.")
    shutdown_seconds: int = setting(20, "How long a stop waits for requests and steps in progress.")


@dataclass(frozen=True)
class Domains:
    """Host names: `<tenant>.<base>` serves a tenant, `<app>--<tenant>.<content>` a WebApp."""

    base: str = setting("localhost", "Domain of sign-in, API and console.")
    content: str = setting("content.localhost", "Domain of WebApps and documents; in production another one.")
    public_addresses: tuple[str, ...] = setting([], "Addresses or networks at which the world reaches WebApps, a CDN's included.")
    resolvers: tuple[str, ...] = setting([], "Name servers that are asked about custom domains; empty: the system's.")


@dataclass(frozen=True)
class Storage:
    """Where data lives."""

    data: str = setting("./data", "Folder of the database, the key file and everything else that must be kept.")
    database: str = setting("", "Database URL; empty means SQLite in the data folder.")


@dataclass(frozen=True)
class Blobs:
    """Where contents of documents and WebApps are kept."""

    store: Literal["local", "s3"] = setting("local", "In the data folder, or in a bucket that speaks S3.")
    bucket: str = setting(
        "",
        "Name of the bucket; with the prefix it belongs to this installation alone, which marks it and deletes what it "
        "does not know.",
    )
    prefix: str = setting("", "Folder inside the bucket; empty for all of it.")
    endpoint: str = setting("", "Address of the server, such as https://s3.example.com; empty means Amazon's in the region.")
    ca_file: str = setting("", "PEM file with the authority of the endpoint's certificate, beside those that the system trusts.")
    region: str = setting("us-east-1", "Region of the bucket.")
    key_id: str = setting("", "Name of the access key; empty for AWS_ACCESS_KEY_ID of the environment, or the role of the machine.")
    secret_key: str = setting("", "The access key itself; better given as GOS_BLOBS_SECRET_KEY.", secret=True)
    path_style: bool = setting(True, "The bucket stands in the path (most servers); false: in the host name.")


@dataclass(frozen=True)
class Backup:
    """Backups of the whole appliance, and those that it makes by itself."""

    to: str = setting("", "Folder that they are written to, best on another disk or machine; empty for none.")
    every: str = setting("24h", "How often, such as 6h or 24h.")
    keep: int = setting(7, "How many good ones stay; older ones are deleted.")
    passphrase: str = setting(
        "",
        "Encrypts them; without it the key file is left out. Better given as GOS_BACKUP_PASSPHRASE, and kept where you will "
        "find it without this appliance.",
        secret=True,
    )


@dataclass(frozen=True)
class Sandbox:
    """The processes in which step code runs."""

    runtimes: str = setting("", "Folder of the prepared WebAssembly runtimes; empty means the installed one.")
    processes: int = setting(2, "Sandbox processes; one per processor core is a good number.")
    slots: int = setting(8, "Steps one sandbox process runs at once.")
    queue_seconds: int = setting(60, "How long a step waits for a place in a sandbox process before it is tried again later.")
    first_user: int = setting(
        65_100,
        "Started as root, each sandbox process becomes a user of its own: the first of 400 numbers that nobody else uses. "
        "0: they stay root, without capabilities.",
    )


@dataclass(frozen=True)
class Formats:
    """The worker processes in which files are read and written."""

    processes: int = setting(2, "Files worked on at once.")
    memory_mb: int = setting(256, "Memory of a file or ocr step that sets none, beside what the libraries take.")
    queue_seconds: int = setting(60, "How long a step waits for a worker process before it is tried again later.")


@dataclass(frozen=True)
class Queue:
    """The workers that run executions."""

    workers: int = setting(8, "Executions worked on at once by one process.")
    lease_seconds: int = setting(30, "How long a silent worker on another host keeps an execution.")
    sweep_ms: int = setting(500, "How often lost wake-ups, dead workers and due timers are looked for.")
    max_claims: int = setting(20, "Claims without progress after which an execution fails as `system`.")


@dataclass(frozen=True)
class Limits:
    """Defaults of CONTRACT § 14."""

    json_body_kb: int = setting(1024, "Largest JSON body.")
    json_depth: int = setting(64, "Deepest nesting of a JSON body.")
    upload_mb: int = setting(100, "Largest streamed upload.")
    document_mb: int = setting(2048, "Largest document that is uploaded in parts.")
    archive_files: int = setting(10_000, "Most files in an archive.")
    archive_mb: int = setting(500, "Largest unpacked archive.")
    step_seconds: int = setting(30, "Wall time of a step that sets none (at most 15 minutes).")
    step_memory_mb: int = setting(64, "Memory of a step that sets none (at most 512).")
    step_output_kb: int = setting(1024, "Largest output of a step.")
    step_answer_kb: int = setting(8192, "Largest answer to a host call of a step; it is kept in the journal.")
    step_host_calls: int = setting(1000, "Most host calls of a step.")
    step_call_seconds: int = setting(60, "Time one call of step code to a foreign system may take, within the time of its step.")
    replay_seconds: int = setting(60, "Longest replay of an execution.")
    execution_minutes: int = setting(60, "Active time of an execution that sets none.")
    waiting_days: int = setting(90, "Longest wait of an execution.")
    execution_steps: int = setting(10_000, "Most step runs of an execution.")
    entity_kb: int = setting(1024, "Largest entity.")
    query_rows: int = setting(500, "Most rows a query answers at once.")
    query_seconds: int = setting(10, "Longest time a query of the DataPool takes before it is ended with 504 timed_out.")
    rate_requests: int = setting(600, "Requests a new API key may make per window.")
    rate_window_s: int = setting(60, "Length of that window in seconds.")
    streams_per_key: int = setting(20, "Event streams one API key or one signed-in person may have open.")
    streams_per_tenant: int = setting(100, "Event streams one tenant may have open.")
    streams: int = setting(500, "Event streams of all tenants together; the limits of streams hold for one process.")
    queued_executions: int = setting(10_000, "Executions of one tenant that may wait for their turn (run_at: or their time).")
    execution_descendants: int = setting(1_000, "Unfinished executions that may descend from one.")
    tenant_storage_mb: int = setting(10_240, "What one tenant stores (contents, entities and their history); 0 is no limit.")
    route_calls: int = setting(120, "Calls of a WebApp's routes that one address may make per minute.")


@dataclass(frozen=True)
class WebApps:
    """What each WebApp may have, and what is kept of its visitors; 0 is no limit."""

    addresses: Literal["truncated", "full", "none"] = setting(
        "truncated", "What the log of requests keeps of an address: its network (/24, /48), all of it, or nothing."
    )
    stored_mb: int = setting(0, "Contents of all kept versions of an app together, each counted once.")
    requests_per_minute: int = setting(0, "Requests to one app in a minute, at one process; beyond it everybody gets 429.")
    egress_mb_per_day: int = setting(0, "What one app may send on a day (UTC); beyond it everybody gets 429.")


@dataclass(frozen=True)
class Retention:
    """How long finished things are kept, in days."""

    executions_days: int = setting(30, "Finished executions with their steps and journal, runs of agents with their traces.")
    logs_days: int = setting(30, "Log lines, and requests to WebApps.")
    audit_days: int = setting(400, "The audit trail.")


@dataclass(frozen=True)
class Egress:
    """Which addresses connectors may reach beyond the public internet."""

    allow: tuple[str, ...] = setting(
        [], "Otherwise forbidden targets, each `host`, `host:port`, `address:port` or CIDR: 10.1.0.0/16, erp.internal:443."
    )
    ca_file: str = setting("", "PEM file with further certificate authorities that connectors trust.")


@dataclass(frozen=True)
class Folders:
    """Which folders of this machine connectors may use (in a container: mount them)."""

    allow: tuple[str, ...] = setting(
        [],
        "Absolute folders, each with all that is in it; {tenant} stands for the tenant's id, without it every tenant may use the "
        "folder; :ro at the end allows only reading: /srv/exchange/{tenant}, /srv/catalogue:ro.",
    )
    quota_mb: int = setting(1024, "Most that a folder may hold after a connector has written to it; 0 for no limit.")


@dataclass(frozen=True)
class Connectors:
    """The connector plugins."""

    reload: bool = setting(False, "For development: changed files of editable plugins and of YAML connectors take effect at once.")


@dataclass(frozen=True)
class Console:
    """The web console."""

    provision: Literal["sandbox", "off"] = setting(
        "sandbox", "What a signed-in person without a membership gets: a sandbox tenant of their own, or nothing."
    )
    invitations: Literal["on", "off"] = setting(
        "on", "Whether owners of tenants invite people who have no account yet; off: accounts are made by `gos user add` alone."
    )
    session_hours: int = setting(12, "How long a session lasts without use.")
    language: str = setting(
        "en", "Of the pages for whoever has chosen none and whose browser asks for none that there is a translation for."
    )
    administrators: tuple[str, ...] = setting(
        [], "Logins of those who run the appliance: in whatever tenant, they alone see its configuration and its backups."
    )


@dataclass(frozen=True)
class Approvals:
    """What is asked of people."""

    email_integration: str = setting(
        "",
        "Slug of the e-mail integration by which a tenant that has one tells whoever may decide, and sends invitations; empty "
        "tells nobody.",
    )
    letter_seconds: int = setting(
        600, "A person gets one letter in so many seconds at most; what was asked meanwhile is in the next one, with its number."
    )
    open_per_tenant: int = setting(1000, "Requests that wait for people in a tenant at once; beyond it asking answers 429.")
    open_per_requester: int = setting(
        100, "Requests of one key, execution or run, or of all runs of one agent, that wait at once; beyond it 429."
    )


@dataclass(frozen=True)
class Authority:
    """What becomes of authority that nobody holds any more; an owner confirms or refuses it in the console."""

    confirm_wider_within: str = setting(
        "0s",
        "How long after the upgrade a secret's use or a process's grants that are wider than their author go on without an "
        "owner's confirmation; 0s suspends them at once.",
    )
    confirm_departed_within: str = setting(
        "30d",
        "How long after the upgrade keys, secrets' uses and grants of people who have left go on without one.",
    )


@dataclass(frozen=True)
class Logs:
    """What the process itself logs to standard error."""

    level: Literal["debug", "info", "warning", "error"] = setting("info", "Least level that is written.")
    format: Literal["json", "text"] = setting("json", "One JSON object or one readable line per record.")


@dataclass(frozen=True)
class Demo:
    """Helps for trying the appliance out; all off in production."""

    order_system: bool = setting(False, "Serve a small order system under /demo/ for the starter solution.")


@dataclass(frozen=True)
class Tls:
    """HTTPS beyond `server.tls`, which says what a host without a certificate of its own gets."""

    http_port: int = setting(
        0,
        "Port of a second listener without TLS, which answers an authority's questions (ACME, HTTP-01) and sends browsers to "
        "https; 80 for ACME, 0 for none.",
    )
    hsts: bool = setting(
        True,
        "Tell browsers to come by https only (HSTS): on the base host and those of tenants for a year, or for a day with a "
        "certificate of the built-in authority; on WebApps' own domains from their second day with a certificate from outside: "
        "for a day, after a week for a week, after a month for a year.",
    )


@dataclass(frozen=True)
class Acme:
    """Certificates from an ACME authority (RFC 8555), ordered and renewed without anybody's doing."""

    directory: str = setting("", "Address of the authority's directory, with https; empty: no ACME.")
    agree_terms: bool = setting(False, "You agree to the authority's terms of service; needed with a directory.")
    email: str = setting("", "Where the authority may write to.")
    eab_key_id: str = setting("", "Key id of an external account binding, where the authority demands one.")
    eab_hmac_key: str = setting("", "Its HMAC key, in base64url.", secret=True)
    ca_file: str = setting("", "PEM file of the authorities that are believed for the directory, instead of the public ones.")
    dns_hook: tuple[str, ...] = setting(
        [],
        "Command that proves names by DNS (DNS-01) instead of HTTP, without a shell: it is called with add or remove, the name of "
        "a TXT record and its value, and ends with 0 once the name servers answer so.",
    )
    hook_seconds: int = setting(120, "How long that command may take.")
    own_hosts: bool = setting(
        False, "Order one certificate for the base domain, every tenant and every WebApp too (wildcards: needs dns_hook)."
    )


@dataclass(frozen=True)
class Scan:
    """The scanner that looks at every content before it becomes a document."""

    command: tuple[str, ...] = setting(
        [],
        "Program and arguments, the program with its whole path; the file's path comes last, or in the place of {file}. It ends "
        "with 0: clean, 1: malware, anything else: it could not say. Empty for none. Example: /usr/bin/clamdscan, --fdpass, "
        "--no-summary",
    )
    timeout_s: int = setting(60, "How long it may take.")
    on_error: Literal["refuse", "quarantine"] = setting(
        "refuse", "What it could not judge is refused, or kept and given to nobody until it is found clean."
    )


@dataclass(frozen=True)
class Metrics:
    """Who may read `GET /metrics` on the base host: who shows the token, and the addresses named here."""

    token: str = setting(
        "", "Whoever sends it as Authorization: Bearer may read them, from any address; 16 characters or more.", secret=True
    )
    token_file: str = setting("", "File with the token, instead of it.")
    allow: tuple[str, ...] = setting(
        ["127.0.0.0/8", "::1/128"],
        "Networks (CIDR) that need no token, for requests that come directly: not by a proxy, and not from an integration.",
    )


@dataclass(frozen=True)
class Otlp:
    """Traces and metrics to a collector, by OTLP over HTTP (protobuf)."""

    endpoint: str = setting(
        "", "Address of the collector; /v1/traces and /v1/metrics are added. Empty: nothing is sent. Example: http://127.0.0.1:4318"
    )
    headers: tuple[str, ...] = setting([], "Headers that go with every push, each as Name: value.", secret=True)
    sample_percent: int = setting(100, "Of how many traces in a hundred the spans are sent; 0 for no spans.")
    metrics_seconds: int = setting(60, "How often what /metrics shows is pushed; 0 for never.")
    service_name: str = setting("gos", "What this appliance is called there (service.name).")
    ca_file: str = setting("", "PEM file of the authorities that are believed for the collector, instead of the public ones.")
