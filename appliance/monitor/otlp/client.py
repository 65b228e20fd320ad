"""The HTTP client for a collector."""

import ssl

import httpx

from appliance.core.config.sections import Otlp

ANSWER_SECONDS = 10.0


def make_client(settings: Otlp) -> httpx.Client:
    """A client that sends only to the configured endpoint: no proxy from the environment, no redirects."""
    headers = {"Content-Type": "application/x-protobuf", "User-Agent": "gos"}
    headers |= {name.strip(): value.strip() for name, _, value in (each.partition(":") for each in settings.headers)}
    verify = ssl.create_default_context(cafile=settings.ca_file) if settings.ca_file else True
    return httpx.Client(headers=headers, verify=verify, trust_env=False, timeout=ANSWER_SECONDS, follow_redirects=False)
