"""Compares new passwords with a list of those known from data breaches, by their SHA-1, as the public list is published.

The list is a folder with a file for each range, named by the first five hexadecimal digits of the hash, one sorted file of whole
hashes, or a service that answers `GET <url>/<five digits>`: it learns nothing but these digits (k-anonymity).
"""

import hashlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from appliance.connectors.contract import ConnectorError, HttpRequest
from appliance.connectors.egress import Egress, EgressClient
from appliance.core.errors import ApplianceError

log = logging.getLogger(__name__)

PREFIX, DIGITS = 5, 40
SECONDS = 5.0
LONGEST_LINE = 200
PROBE = "password"  # known from breaches in every list


class BreachListUnavailable(ApplianceError):
    """The list cannot be read, so it is not known whether the password is in it."""

    code, status = "breach_list_unavailable", 503


class BreachList(ABC):
    """A list of hashes; `is_known` raises BreachListUnavailable, whose reason is logged."""

    def __init__(self, place: str) -> None:
        self.place = place

    def is_known(self, password: str) -> bool:
        """Whether the password is in the list."""
        digest = hashlib.sha1(password.encode("utf8"), usedforsecurity=False).hexdigest().upper()
        try:
            return self.contains(digest)
        except (OSError, ConnectorError, ValueError) as error:
            fields = {"list": self.place, "reason": str(error)}
            log.warning("The list of breached passwords cannot be read.", extra={"fields": fields})
            raise BreachListUnavailable(
                "new passwords are compared with a list of breached ones, which cannot be read at the moment; try again later, and "
                "if it fails again, tell the operator of this appliance (gos doctor says why)"
            ) from error

    @abstractmethod
    def contains(self, digest: str) -> bool:
        """Whether the list has this hash, in capitals.  OSError, ConnectorError, ValueError."""


class RangeFolder(BreachList):
    """A file for each range: `21BD1` or `21BD1.txt`, with the other 35 digits of a hash and its count on each line."""

    def contains(self, digest: str) -> bool:
        prefix, rest = digest[:PREFIX], digest[PREFIX:]
        paths = [Path(self.place) / f"{prefix}{end}" for end in ("", ".txt")]
        path = next((each for each in paths if each.is_file()), paths[-1])
        with path.open(encoding="ascii") as file:
            return has_line(file, rest)


class RangeService(BreachList):
    """A service with ranges; filling lines, whose count is 0, say nothing."""

    def __init__(self, place: str, egress: Egress) -> None:
        super().__init__(place)
        self._client = EgressClient(egress)

    def contains(self, digest: str) -> bool:
        url = f"{self.place.rstrip('/')}/{digest[:PREFIX]}"
        request = HttpRequest("GET", url, headers=[("Add-Padding", "true")], follow_redirects=False)
        answer = self._client.send(request, time.monotonic() + SECONDS)
        if answer.status != 200:
            raise ValueError(f"{urlsplit(url).hostname} answered with {answer.status}")
        return has_line(answer.content.decode("ascii").splitlines(), digest[PREFIX:])


class HashFile(BreachList):
    """One file with a whole hash and its count on each line, sorted by hash."""

    def contains(self, digest: str) -> bool:
        searched = digest.encode("ascii")
        with Path(self.place).open("rb") as file:
            low, high = 0, file.seek(0, 2)
            while low < high:  # the line that begins first at or after `low` is not before the hash
                middle = (low + high) // 2
                file.seek(max(middle - 1, 0))
                if middle:
                    file.readline(LONGEST_LINE)
                line = file.readline(LONGEST_LINE)
                if line and line[:DIGITS].upper() < searched:
                    low = file.tell()
                else:
                    high = middle
            file.seek(max(low - 1, 0))
            if low:
                file.readline(LONGEST_LINE)
            return has_line([file.readline(LONGEST_LINE).decode("ascii")], digest)


def has_line(lines: Iterable[str], digits: str) -> bool:
    """Whether a line is these digits with a count other than 0, or without one.  ValueError if a line is no hash."""
    for line in lines:
        text, _, number = line.strip().partition(":")
        if text and len(text) != len(digits):
            raise ValueError(f"a line of the list has {len(text)} characters before the colon, not {len(digits)}")
        if text.upper() == digits and number.strip() != "0":
            return True
    return False


def open_breach_list(place: str, egress: Egress) -> BreachList:
    """The list at this path or URL."""
    if place.startswith(("https://", "http://")):
        return RangeService(place, egress)
    return RangeFolder(place) if Path(place).is_dir() else HashFile(place)
