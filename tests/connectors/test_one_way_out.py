"""Only the egress client of the appliance opens connections; the exceptions are listed here with their reason."""

from pathlib import Path

import pytest

from tests.architecture.source_tree import imported_modules, name_of, offences_in, python_files, tree_of

OPENERS = {
    "socket",
    "ssl",
    "http.client",
    "urllib.request",
    "smtplib",
    "ftplib",
    "imaplib",
    "poplib",
    "nntplib",
    "telnetlib",
    "xmlrpc",
} | {"httpx", "httpcore", "requests", "urllib3", "httplib2", "aiohttp", "pycurl", "websockets"}
MAY = {
    "appliance/connectors/": "the one way out",
    "appliance/sandbox/": "socket pairs to its own child processes",
    "appliance/formats/preloading": "a socket pair to its own child process",
    "appliance/formats/forking": "that child's end of it",
    "appliance/core/mail": "speaks to the mail server the operator names",
    "appliance/core/confinement/user_numbers": "binds names that nobody connects to",
    "appliance/backups/rehearsal/": "asks the appliance that it has started on loopback",
    "appliance/blobs/unfinished_uploads": "speaks to the bucket the operator names",
    "appliance/testing/": "speaks to the appliance under test",
    "appliance/app/findings/checks": "asks the bucket that the operator names",
    "appliance/cli": "speaks to the appliance the operator names",
    "appliance/monitor/otlp/": "speaks to the collector the operator names",
    "appliance/monitor/forwarding/syslog": "speaks to the syslog server the operator names",
    "appliance/sites/front/tls": "serves certificates",
    "appliance/webapps/certificates/client": "speaks to the certificate authority the operator names",
    "appliance/webapps/domains/lookups": "asks the name servers the operator names",
}


def find_openers(path: Path) -> list[str]:
    return [name for _, name in imported_modules(tree_of(path)) if is_opener(name)]


def test_no_other_module_opens_connections() -> None:
    others = [path for path in python_files("appliance") if not name_of(path).startswith(tuple(MAY))]
    assert offences_in(others, find_openers) == {}


def is_opener(name: str) -> bool:
    return any(name == opener or name.startswith(f"{opener}.") for opener in OPENERS)


@pytest.mark.parametrize(
    "name", ["httpx.Client", "socket.create_connection", "urllib.request.urlopen", "http.client.HTTPConnection", "imaplib.IMAP4"]
)
def test_an_opener_is_found(name: str) -> None:
    assert is_opener(name)


@pytest.mark.parametrize("name", ["urllib.parse.urlsplit", "http.HTTPStatus", "appliance.connectors.egress.Egress"])
def test_harmless_neighbours_pass(name: str) -> None:
    assert not is_opener(name)
