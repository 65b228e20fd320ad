"""What a browser may load for a page of the console, and where its forms may lead."""

from appliance.core.config import Config


def content_policy(config: Config) -> str:
    """The Content-Security-Policy of pages: only our own files, and forms only to our own hosts.

    The other hosts are allowed because signing in and out redirects between the base host and the tenants' hosts.
    """
    base = f"{config.domains.base}{config.port_suffix}"
    hosts = f"{config.scheme}://{base} {config.scheme}://*.{base}"
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
        f"form-action 'self' {hosts}; base-uri 'none'; frame-ancestors 'none'"
    )
