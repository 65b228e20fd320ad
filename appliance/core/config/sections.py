"""The sections of the configuration: every setting with its type, its default and its documentation."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal


def setting(default: Any, doc: str, *, secret: bool = False) -> Any:
    """A dataclass field for a setting, with its default and documentation; a `secret` is omitted from the section's repr."""
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: tuple(default), metadata={"doc": doc}, repr=not secret)
    return dataclasses.field(default=default, metadata={"doc": doc}, repr=not secret)


def required(doc: str) -> Any:
    """A dataclass field without a default, for the items of a list, with its documentation."""
    return dataclasses.field(metadata={"doc": doc})


@dataclass(frozen=True)
class Server:
    """Where the appliance listens and how it shuts down."""

    host: str = setting("127.0.0.1", "Address to listen on. With any address but loopback, the console needs HTTPS.")
    port: int = setting(8080, "Port to listen on.")
    public_port: int = setting(0, "Port in the addresses shown to people; 0: the listening port.")
    tls: Literal["auto", "off", "internal", "files"] = setting(
        "auto",
        "auto: plain HTTP on loopback, otherwise a certificate of the built-in CA. off: plain HTTP (behind a proxy that "
        "terminates HTTPS). internal: a certificate of the built-in CA. files: your own certificate.",
    )
    certificate: str = setting("", "PEM file with the certificate chain, for tls: files.")
    private_key: str = setting("", "PEM file with its private key, for tls: files.")
    trusted_proxies: tuple[str, ...] = setting(
        [], "Networks (CIDR) of proxies whose X-Forwarded-For, -Proto and -Host headers are trusted."
    )
    max_in_flight: int = setting(256, "Maximum number of concurrent requests; further ones get 503 with Retry-After.")
    queue_ms: int = setting(
        400,
        "How long a request may wait, in ms, while the processors are busy with others. One that would wait longer gets 503 with "
        "Retry-After at once. From 10 to 60000.",
    )
    run_workers: bool = setting(
        True,
        "true: `gos serve` also runs executions, timers and upkeep. false: it only answers requests, as with --no-workers, and "
        "needs `gos worker` processes beside it. `gos worker` ignores this.",
    )
    drain_seconds: int = setting(
        0,
        "How long `gos serve`, once told to stop, still accepts requests while /readyz answers 503 `stopping`; then it closes its "
        "port. Behind a load balancer that checks /readyz: the time until it notices, such as 10. At most 600.",
    )
    shutdown_seconds: int = setting(20, "How long a shutdown waits for requests and steps in progress.")


@dataclass(frozen=True)
class Domains:
    """Host names: `<tenant>.<base>` serves a tenant, `<app>--<tenant>.<content>` a WebApp."""

    base: str = setting("localhost", "Domain of sign-in, API and console.")
    content: str = setting("content.localhost", "Domain of WebApps and documents; in production, use a separate domain.")
    public_addresses: tuple[str, ...] = setting([], "Public addresses or networks of WebApps, including those of a CDN.")
    resolvers: tuple[str, ...] = setting([], "Name servers used to check custom domains; empty: the system's.")


@dataclass(frozen=True)
class Storage:
    """Where data lives."""

    data: str = setting("./data", "Folder of the database, the key file and all other persistent data.")
    database: str = setting("", "Database URL; empty: SQLite in the data folder.")
    writers: int = setting(4, "Most connections through which one process writes to a database server; SQLite always has one.")


@dataclass(frozen=True)
class Blobs:
    """Where the content of documents and WebApps is stored."""

    store: Literal["local", "s3"] = setting("local", "local: in the data folder. s3: in an S3-compatible bucket.")
    bucket: str = setting(
        "",
        "Name of the bucket. The bucket (with the prefix) must be used by this installation alone: it marks the bucket and "
        "deletes unknown objects.",
    )
    prefix: str = setting("", "Folder inside the bucket; empty: the whole bucket.")
    endpoint: str = setting("", "URL of the server, such as https://s3.example.com; empty: Amazon S3 in the region.")
    ca_file: str = setting("", "PEM file with the CA of the endpoint's certificate, in addition to the CAs that the system trusts.")
    region: str = setting("us-east-1", "Region of the bucket.")
    key_id: str = setting("", "Access key ID; empty: AWS_ACCESS_KEY_ID from the environment, or the role of the machine.")
    secret_key: str = setting("", "Secret access key; prefer the variable GOS_BLOBS_SECRET_KEY.", secret=True)
    path_style: bool = setting(True, "true: the bucket is in the path of the URL (most servers). false: in the host name.")
    public_endpoint: str = setting(
        "", "URL by which browsers and clients reach the server for direct downloads, if it is another one than the endpoint."
    )
    direct_from_mb: int = setting(
        0,
        "Documents of at least this size (MB) may be downloaded from the bucket itself, by an address that is signed for a minute "
        "after all checks; 0: never. Needs key_id and secret_key.",
    )
    cache_mb: int = setting(
        512, "Most space in the data folder for copies of small contents of the bucket, so that they are read once (MB); 0: none."
    )
    keep_deleted: str = setting(
        "", "How long contents of deleted documents stay in the store, such as 8d, for a PostgreSQL database that is restored to "
        "an earlier moment; empty: a day.",
    )  # fmt: skip


@dataclass(frozen=True)
class Sandbox:
    """The processes in which step code runs."""

    runtimes: str = setting("", "Folder of the prepared WebAssembly runtimes; empty: the installed ones.")
    processes: int = setting(2, "Number of sandbox processes; use about one per processor core.")
    slots: int = setting(8, "Number of steps that one sandbox process runs concurrently.")
    queue_seconds: int = setting(60, "How long a step waits for a free slot in a sandbox process before it is retried later.")
    first_user: int = setting(
        65_100,
        "If the appliance runs as root, each sandbox process switches to a user ID of its own; this is the first of 400 IDs, "
        "which nothing else may use. 0: they stay root, without capabilities.",
    )


@dataclass(frozen=True)
class Formats:
    """The worker processes that read and write files."""

    processes: int = setting(2, "Number of files processed concurrently.")
    memory_mb: int = setting(256, "Default memory of a file or ocr step, in addition to the memory of the libraries.")
    queue_seconds: int = setting(60, "How long a step waits for a worker process before it is retried later.")


@dataclass(frozen=True)
class Queue:
    """The workers that run executions."""

    workers: int = setting(8, "Number of executions that one process runs concurrently.")
    lease_seconds: int = setting(30, "After how long without a heartbeat a worker on another host loses its execution.")
    sweep_ms: int = setting(500, "Interval at which lost wake-ups, dead workers and due timers are detected.")
    max_claims: int = setting(20, "Claims without progress after which an execution fails with the error `system`.")


@dataclass(frozen=True)
class Limits:
    """Limits and their defaults (docs/contract.md § 14)."""

    json_body_kb: int = setting(1024, "Maximum size of a JSON body.")
    json_depth: int = setting(64, "Maximum nesting of a JSON body.")
    upload_mb: int = setting(100, "Maximum size of a streamed upload.")
    document_mb: int = setting(2048, "Maximum size of a document that is uploaded in parts.")
    archive_files: int = setting(10_000, "Maximum number of files in an archive.")
    archive_mb: int = setting(500, "Maximum size of an archive when unpacked.")
    step_seconds: int = setting(30, "Default time limit of a step, in wall time (a step can set up to 15 minutes).")
    step_memory_mb: int = setting(64, "Default memory limit of a step (a step can set up to 512).")
    step_output_kb: int = setting(1024, "Maximum size of a step's output.")
    step_answer_kb: int = setting(8192, "Maximum size of the result of a step's host call; it is stored in the journal.")
    step_host_calls: int = setting(1000, "Maximum number of host calls of a step.")
    step_call_seconds: int = setting(60, "Time limit of a call to a foreign system from step code, within the step's own limit.")
    replay_seconds: int = setting(60, "Time limit of the replay of an execution.")
    execution_minutes: int = setting(60, "Default limit of an execution's active time.")
    waiting_days: int = setting(90, "Maximum time an execution can wait.")
    execution_steps: int = setting(10_000, "Maximum number of step runs of an execution.")
    entity_kb: int = setting(1024, "Maximum size of an entity.")
    query_rows: int = setting(500, "Maximum number of rows in the result of a query.")
    query_seconds: int = setting(10, "Time limit of a DataPool query; a longer one ends with 504 timed_out.")
    rate_requests: int = setting(600, "Default number of requests that an API key can make per window.")
    rate_window_s: int = setting(60, "Length of that window in seconds.")
    streams_per_key: int = setting(20, "Maximum number of open event streams per API key or signed-in person.")
    streams_per_tenant: int = setting(100, "Maximum number of open event streams per tenant.")
    streams: int = setting(500, "Maximum number of open event streams of each process.")
    queued_executions: int = setting(10_000, "Maximum number of queued executions per tenant, including scheduled ones (run_at).")
    execution_descendants: int = setting(1_000, "Maximum number of unfinished executions that descend from one execution.")
    tenant_storage_mb: int = setting(
        10_240, "Storage of a tenant without a quota of its own (content, entities and their history); 0: no limit."
    )
    route_calls: int = setting(120, "Calls to a WebApp's routes per minute and client address.")


@dataclass(frozen=True)
class WebApps:
    """Limits of each WebApp (0: no limit), and logging of visitors' addresses."""

    addresses: Literal["truncated", "full", "none"] = setting(
        "truncated", "How client addresses are logged: as their network (/24, /48), in full, or not at all."
    )
    stored_mb: int = setting(0, "Storage of one app: the content of all stored versions, each file counted once.")
    requests_per_minute: int = setting(0, "Requests to one app per minute and process; further requests get 429.")
    egress_mb_per_day: int = setting(0, "Data that one app can send per day (UTC); after that, all requests get 429.")


@dataclass(frozen=True)
class Retention:
    """Retention periods, in days."""

    executions_days: int = setting(30, "Finished executions with their steps and journal, and agent runs with their traces.")
    logs_days: int = setting(30, "Log lines and requests to WebApps.")
    key_requests_days: int = setting(7, "Requests of API keys that record them.")
    key_addresses_days: int = setting(90, "Addresses that API keys were used from, after their last use.")
    audit_days: int = setting(400, "The audit trail.")


@dataclass(frozen=True)
class Egress:
    """Addresses that connectors can reach in addition to the public internet."""

    allow: tuple[str, ...] = setting(
        [],
        "Internal targets to allow, each as `host`, `host:port`, `address:port` or CIDR: 10.1.0.0/16, erp.internal:443. "
        "none: reach nothing at all, not even the public internet.",
    )
    ca_file: str = setting("", "PEM file with additional certificate authorities that connectors trust.")


@dataclass(frozen=True)
class Folders:
    """Folders of this machine that connectors can use (in a container: mount them)."""

    allow: tuple[str, ...] = setting(
        [],
        "Absolute paths of folders, including their subfolders. {tenant} stands for the tenant's id; without it, all tenants can "
        "use the folder. End with :ro for read-only access: /srv/exchange/{tenant}, /srv/catalogue:ro.",
    )
    quota_mb: int = setting(1024, "Maximum size of a folder that connectors write to; 0: no limit.")


@dataclass(frozen=True)
class Connectors:
    """Connector plugins."""

    reload: bool = setting(False, "For development: reload editable plugins and YAML connectors when their files change.")


@dataclass(frozen=True)
class Console:
    """The web console."""

    provision: Literal["sandbox", "off"] = setting(
        "sandbox", "sandbox: a person who signs in without a membership gets a sandbox tenant. off: they get no tenant."
    )
    invitations: Literal["on", "off"] = setting(
        "on", "on: owners of tenants can invite people who have no account. off: only `gos user add` creates accounts."
    )
    session_hours: int = setting(12, "How long an unused session stays valid.")
    sign_in_days: int = setting(30, "How long a sign-in lasts at most, however much it is used.")
    language: str = setting("en", "Default language, if neither the person nor their browser selects an available one.")
    administrators: tuple[str, ...] = setting(
        [], "Logins of the appliance's administrators; only they can see its configuration and backups, in any of their tenants."
    )


@dataclass(frozen=True)
class Approvals:
    """Approvals and other requests to people."""

    email_integration: str = setting(
        "",
        "Slug of the e-mail integration that notifies approvers and sends invitations, in tenants that have an integration of "
        "this name; empty: no e-mails.",
    )
    letter_seconds: int = setting(
        600, "Minimum interval between two e-mails to the same person; the next e-mail says how many requests arrived meanwhile."
    )
    open_per_tenant: int = setting(1000, "Maximum number of open requests per tenant; further ones get 429.")
    open_per_requester: int = setting(
        100, "Maximum number of open requests per key, execution or run, and for all runs of an agent; further ones get 429."
    )


@dataclass(frozen=True)
class Authority:
    """Permissions that no member has any more; an owner confirms or refuses them in the console."""

    confirm_wider_within: str = setting(
        "0s",
        "How long process and WebApp versions from before grants were recorded may exceed their author's permissions without an "
        "owner's confirmation; 0s: they are suspended immediately.",
    )
    confirm_departed_within: str = setting(
        "30d",
        "How long process and WebApp versions from before grants were recorded may run without an owner's confirmation if their "
        "author has left.",
    )


@dataclass(frozen=True)
class Logs:
    """The appliance's own log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = setting("info", "Minimum level to log.")
    format: Literal["json", "text"] = setting("json", "json: one JSON object per record. text: one readable line per record.")


@dataclass(frozen=True)
class Demo:
    """Features for trying out the appliance; leave them off in production."""

    order_system: bool = setting(False, "Serve a small order system under /demo/ for the starter solution.")


@dataclass(frozen=True)
class Tls:
    """HTTPS settings in addition to `server.tls`, which applies to hosts without a certificate of their own."""

    http_port: int = setting(
        0,
        "Port of a second listener without TLS, which answers ACME challenges (HTTP-01) and redirects browsers to https; 80 for "
        "ACME, 0: no such listener.",
    )
    hsts: bool = setting(
        True,
        "Send HSTS headers. On the base host and tenants' hosts they last a year, or a day with a certificate of the built-in CA. "
        "On WebApps' own domains they start on the second day with a public certificate and last a day, after a week a week, "
        "after a month a year. Behind a trusted proxy they last a year on requests that it received by HTTPS.",
    )
    hsts_subdomains: bool = setting(
        False, "Extend HSTS of the base host and tenants' hosts to all their subdomains; only if none of them needs plain HTTP."
    )


@dataclass(frozen=True)
class Acme:
    """Certificates from an ACME authority (RFC 8555), ordered and renewed automatically."""

    directory: str = setting("", "URL of the authority's directory, with https; empty: no ACME.")
    agree_terms: bool = setting(False, "Whether you agree to the authority's terms of service; required with a directory.")
    email: str = setting("", "Contact address for the authority.")
    eab_key_id: str = setting("", "Key ID of an external account binding, if the authority requires one.")
    eab_hmac_key: str = setting("", "HMAC key of the external account binding, in base64url.", secret=True)
    ca_file: str = setting("", "PEM file with the CAs to trust for the directory, instead of the public ones.")
    dns_hook: tuple[str, ...] = setting(
        [],
        "Command that answers challenges by DNS (DNS-01) instead of HTTP. It runs without a shell, with the arguments add or "
        "remove, the name of a TXT record and its value, and must exit with 0 once the name servers have the change.",
    )
    hook_seconds: int = setting(120, "Time limit of that command.")
    own_hosts: bool = setting(
        False, "Also order a certificate for the base domain, all tenants and all WebApps (a wildcard, which needs dns_hook)."
    )


@dataclass(frozen=True)
class Scan:
    """The malware scanner that checks all content before it becomes a document."""

    command: tuple[str, ...] = setting(
        [],
        "The absolute path of the program, and its arguments; the path of the file replaces {file}, or is added at the end. Exit "
        "codes: 0 clean, 1 malware, anything else an error. Empty: no scanner. Example: /usr/bin/clamdscan, --fdpass, --no-summary",
    )
    timeout_s: int = setting(60, "Time limit of a scan.")
    on_error: Literal["refuse", "quarantine"] = setting(
        "refuse", "refuse: content whose scan fails is rejected. quarantine: it is stored but withheld until a scan finds it clean."
    )


@dataclass(frozen=True)
class Metrics:
    """Access to `GET /metrics` on the base host, by token or by address."""

    token: str = setting(
        "", "Token that allows access from any address, sent as Authorization: Bearer; at least 16 characters.", secret=True
    )
    token_file: str = setting("", "File that contains the token; an alternative to token.")
    allow: tuple[str, ...] = setting(
        ["127.0.0.0/8", "::1/128"],
        "Networks (CIDR) that need no token, for direct requests (not through a proxy, and not from an integration).",
    )


@dataclass(frozen=True)
class Audit:
    """Where entries of the audit trails are sent as they are made."""

    syslog: str = setting(
        "", "Syslog server (RFC 5424): tls://HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT. Empty: none."
    )
    otlp: str = setting(
        "", "URL of a collector that gets the entries as OTLP logs; /v1/logs is appended. Example: https://siem.example.com:4318"
    )
    otlp_headers: tuple[str, ...] = setting([], "Headers to send to this collector, each as Name: value.", secret=True)
    ca_file: str = setting(
        "", "PEM file with the CAs to trust for the syslog server and this collector, instead of the public ones."
    )
    checkpoint_minutes: int = setting(
        15, "Shortest interval between two signed checkpoints of a trail, which prove that the entries up to there are complete."
    )


@dataclass(frozen=True)
class Otlp:
    """Export of traces and metrics to a collector, by OTLP over HTTP (protobuf)."""

    endpoint: str = setting(
        "", "URL of the collector; /v1/traces and /v1/metrics are appended. Empty: no export. Example: http://127.0.0.1:4318"
    )
    headers: tuple[str, ...] = setting([], "Headers to send with every export, each as Name: value.", secret=True)
    sample_percent: int = setting(100, "Percentage of traces to export; 0: no traces.")
    metrics_seconds: int = setting(60, "Interval at which the metrics of /metrics are exported; 0: no metrics.")
    service_name: str = setting("gos", "Name of this appliance in the collector (service.name).")
    ca_file: str = setting("", "PEM file with the CAs to trust for the collector, instead of the public ones.")
