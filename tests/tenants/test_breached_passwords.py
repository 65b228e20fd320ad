"""New passwords are compared with a list of those known from breaches, of which no more than five digits leave the house."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from appliance.app.findings.sign_in import password_findings
from appliance.app.parts import compare_new_passwords
from appliance.core.config import Config, load_config
from appliance.core.errors import ApplianceError, ConfigInvalid, ValidationFailed
from appliance.tenants import people
from appliance.tenants.sign_in import SignInFailed, set_breached_passwords

LOGIN = "ann@acme.test"
BREACHED, FINE = "seven green bottles hum quietly", "eight brown kettles sing loudly"


def sha1(password: str) -> str:
    return hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper()


class Mirror:
    """A service with ranges on loopback; `requests` has the path and the headers of each request."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.status = 200
        self.requests: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                body = "\r\n".join(outer.lines.get(self.path.rpartition("/")[2], [f"{'0' * 35}:0"])).encode()
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                """Nothing to log."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/range"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def add(self, password: str, number: int = 7) -> None:
        self.lines.setdefault(sha1(password)[:5], []).append(f"{sha1(password)[5:]}:{number}")

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    mirror = Mirror()
    yield mirror
    mirror.close()


@pytest.fixture(autouse=True)
def nothing_compared_afterwards() -> Iterator[None]:
    yield
    set_breached_passwords(None)


def configure(place: str | Path) -> Config:
    return load_config(environment={}, flags={"passwords.breaches": str(place)})


def make_folder(folder: Path, *passwords: str, end: str = ".txt") -> Path:
    for password in passwords:
        with (folder / f"{sha1(password)[:5]}{end}").open("a") as file:
            file.write(f"{sha1(password)[5:]}:3\r\n")
    return folder


def make_file(path: Path, *passwords: str) -> Path:
    path.write_text("".join(f"{digest}:{number}\n" for number, digest in enumerate(sorted(map(sha1, passwords)), 1)))
    return path


def refuse(password: str = BREACHED) -> str:
    with pytest.raises(ValidationFailed, match=r"known from a data breach.*choose another one") as caught:
        people.create_user(LOGIN, password)
    assert caught.value.details[0].pointer == "/password"
    return str(caught.value)


@pytest.mark.parametrize("end", ["", ".txt"])
def test_a_folder_of_ranges(database: None, tmp_path: Path, end: str) -> None:
    compare_new_passwords(configure(make_folder(tmp_path, BREACHED, end=end)))
    assert BREACHED not in refuse()
    make_folder(tmp_path, f"another one than {FINE}", end=end)
    (tmp_path / f"{sha1(FINE)[:5]}{end}").write_text(f"{'A' * 35}:1\n")
    people.create_user(LOGIN, FINE)
    assert people.check_password(LOGIN, FINE).login == LOGIN


@pytest.mark.parametrize("count", [1, 2, 3, 50, 51])
def test_one_sorted_file(database: None, tmp_path: Path, count: int) -> None:
    passwords = [f"{number} {BREACHED}" for number in range(count)]
    compare_new_passwords(configure(make_file(tmp_path / "hashes.txt", *passwords)))
    for password in passwords:
        refuse(password)
    people.create_user(LOGIN, FINE)


def test_a_service_learns_five_digits_and_no_more(database: None, mirror: Mirror) -> None:
    compare_new_passwords(configure(mirror.url))
    mirror.add(BREACHED)
    mirror.add(FINE, 0)  # a line that only fills
    refuse()
    people.create_user(LOGIN, FINE)
    assert [path for path, _ in mirror.requests] == [f"/range/{sha1(each)[:5]}" for each in (BREACHED, FINE)]
    for _, headers in mirror.requests:
        assert headers["add-padding"] == "true"
        assert not any(part in str(headers) for part in (sha1(BREACHED)[5:], sha1(FINE)[5:], LOGIN))


def test_every_way_to_choose_a_password_compares_it_and_signing_in_does_not(database: None, mirror: Mirror) -> None:
    people.create_user(LOGIN, BREACHED)
    compare_new_passwords(configure(mirror.url))
    mirror.add(BREACHED)
    assert people.check_password(LOGIN, BREACHED).login == LOGIN, "existing ones go on"
    assert mirror.requests == []
    with pytest.raises(ValidationFailed, match="known from a data breach"):
        people.set_password(LOGIN, BREACHED)
    with pytest.raises(SignInFailed):
        people.check_password(LOGIN, FINE)


@pytest.mark.parametrize("broken", ["status", "down", "folder", "file", "text"])
def test_a_list_that_cannot_be_read_refuses_and_doctor_says_why(
    database: None, mirror: Mirror, tmp_path: Path, broken: str
) -> None:
    place: str | Path = mirror.url
    mirror.status = 500 if broken == "status" else 200
    if broken == "down":
        place = "http://127.0.0.1:9/range"
    elif broken == "folder":
        place = tmp_path
    elif broken == "file":
        place = tmp_path / "gone.txt"
    elif broken == "text":
        mirror.lines = {sha1(each)[:5]: ["<html>not a range</html>"] for each in (FINE, "password")}
    config = configure(place)
    compare_new_passwords(config)
    with pytest.raises(ApplianceError, match="cannot be read at the moment; try again later") as refused:
        people.create_user(LOGIN, FINE)
    assert (refused.value.code, refused.value.status) == ("breach_list_unavailable", 503)
    ((level, text),) = password_findings(config)
    assert (level, "no new password is accepted" in text) == ("FAIL", True), text


def test_doctor_knows_a_list_by_the_commonest_password(mirror: Mirror) -> None:
    config = configure(mirror.url)
    ((level, text),) = password_findings(config)
    assert (level, "does not know 'password'" in text) == ("FAIL", True)
    mirror.add("password")
    ((level, _),) = password_findings(config)
    assert level == "ok"
    assert list(password_findings(load_config(environment={}, flags={}))) == []


@pytest.mark.parametrize("place", ["hashes", "http://example.com/range", "https://example.com/range?x=1", "ftp://example.com"])
def test_a_setting_that_is_neither_a_path_nor_an_https_url_is_refused(place: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"passwords\.breaches must be an absolute path, or an https:// URL"):
        configure(place)
