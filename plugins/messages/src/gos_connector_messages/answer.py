"""Maps HTTP statuses to errors of the contract, and tests addresses that are themselves secrets."""

from urllib.parse import urlsplit

from appliance.connectors.contract import ConfigError, ConnectorError, Context, HttpAnswer, excerpt, status_error

_PORTS = {"http": 80, "https": 443}


def error_of(answer: HttpAnswer, subject: str) -> ConnectorError | None:
    """Return the error for an unsuccessful status, None for success.  Messages begin with `subject`, such as "Slack"."""
    status = answer.status
    if 200 <= status < 300:
        return None
    if status in (404, 405, 410):
        message = f"{subject} does not know this address ({status}); create a new one there and update the settings."
        return ConfigError(message, details={"status": status, "body": excerpt(answer)})
    if 300 <= status < 400:
        message = f"{subject} redirects to another address ({status}), which is not followed; set the new address."
        return ConfigError(message, details={"status": status, "body": excerpt(answer)})
    return status_error(answer, subject)


def probe(url: str, ctx: Context) -> str:
    """Return `host:port` of the address after connecting to it, the only test possible without sending a message."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError) as error:
        raise ConfigError("The address is not a valid http or https URL; correct it.") from error
    if not host:
        raise ConfigError("The address contains no host; correct it.")
    ctx.dial(host, port).close()
    return f"{host}:{port}"
