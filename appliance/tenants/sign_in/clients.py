"""Describes where a session is used from: the browser, its operating system and the network address."""

from dataclasses import dataclass

# The first that a header contains; browsers name others, too, to pass for them.
_BROWSERS = (
    ("Edg", "Edge"), ("OPR/", "Opera"), ("SamsungBrowser/", "Samsung Internet"), ("Vivaldi/", "Vivaldi"), ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"), ("CriOS/", "Chrome"), ("Chromium/", "Chromium"), ("Chrome/", "Chrome"), ("Safari/", "Safari"),
)  # fmt: skip
_SYSTEMS = (
    ("Windows", "Windows"), ("Android", "Android"), ("iPhone", "iOS"), ("iPad", "iPadOS"), ("CrOS", "ChromeOS"),
    ("Mac OS X", "macOS"), ("Linux", "Linux"),
)  # fmt: skip
_HEADER_LENGTH = 500  # characters that are looked at


@dataclass(frozen=True)
class Client:
    """A browser at an address; a member is empty if it is not known."""

    browser: str = ""
    system: str = ""
    address: str = ""


UNKNOWN_CLIENT = Client()


def read_client(user_agent: str, address: str) -> Client:
    """The client of a request.  Of its header only known names are kept, never text that the sender chose."""
    header = user_agent[:_HEADER_LENGTH]
    return Client(_first_name(_BROWSERS, header), _first_name(_SYSTEMS, header), address)


def _first_name(names: tuple[tuple[str, str], ...], header: str) -> str:
    return next((name for part, name in names if part in header), "")
