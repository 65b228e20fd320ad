"""Generates the package of a new connector, ready to run: code, tests with a test server, README and pyproject.toml."""

import keyword
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from string import Template

from appliance.core.errors import AlreadyExists, NotFound, ValidationFailed
from appliance.core.sentences import Sentence

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_LONGEST = 40


@dataclass(frozen=True)
class Scaffold:
    """The package's folder and its files, relative to the folder."""

    folder: Path
    files: tuple[str, ...]


def write_scaffold(name: str, parent: Path) -> Scaffold:
    """Write the package of connector `name` into `parent`; AlreadyExists when its folder exists, nothing is overwritten."""
    if not _NAME.fullmatch(name) or "--" in name or len(name) > _LONGEST or keyword.iskeyword(name):
        raise ValidationFailed(
            Sentence(
                "%(name)s cannot be the name of a connector; take up to %(longest)s lower-case letters, digits and "
                "hyphens, beginning with a letter",
                name=repr(name[:60]), longest=_LONGEST,
            ),
            pointer="/name",
        )
    folder = parent / f"gos-connector-{name}"
    package = f"gos_connector_{name.replace('-', '_')}"
    words = {
        "name": name, "variable": name.replace("-", "_"), "distribution": folder.name, "package": package,
        "title": name.replace("-", " ").capitalize(), "class_name": "".join(map(str.capitalize, name.split("-"))) + "Connector",
    }  # fmt: skip
    files = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        f"src/{package}/__init__.py": _INIT,
        f"src/{package}/connector.py": _CONNECTOR,
        f"src/{package}/py.typed": "",
        "tests/stand_in.py": _STAND_IN,
        f"tests/test_{package}.py": _TESTS,
    }
    if folder.exists():
        raise AlreadyExists(Sentence("%(folder)s is there already; take another name, or another place with --in", folder=folder))
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(Template(text).substitute(words), "utf-8")
    write_package_declaration(folder)
    return Scaffold(folder, (*files, "declaration.json"))


_DECLARE = """\
import importlib, json, sys
from appliance.connectors.development.compatibility import declaration_of
module, name = sys.argv[1].split(":")
print(json.dumps(declaration_of(getattr(importlib.import_module(module), name)), indent=1, ensure_ascii=False))
"""


def write_package_declaration(folder: Path) -> None:
    """Write `declaration.json` of the package in `folder`, imported in a separate process; NotFound when it is not a connector."""
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        points = project["entry-points"]["appliance.connectors"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise NotFound(Sentence("%(folder)s is no package of a connector: its pyproject.toml names none", folder=folder)) from error
    path = f"import sys; sys.path.insert(0, {str(folder / 'src')!r}); sys.dont_write_bytecode = True\n"
    for name, target in points.items():
        command = [sys.executable, "-c", path + _DECLARE, target]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the package that was named
        if done.returncode:
            raise NotFound(
                Sentence("%(target)s cannot be imported: %(stderr)s", target=target, stderr=done.stderr.strip().splitlines()[-1])
            )
        file = folder / ("declaration.json" if len(points) == 1 else f"declaration.{name}.json")
        file.write_text(done.stdout, "utf-8")


_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "$distribution"
version = "0.1.0"
description = "Connector of the Governed Operations Service for $title."
readme = "README.md"
requires-python = ">=3.11"

[project.entry-points."appliance.connectors"]
$name = "$package:$class_name"

[tool.hatch.build]
dev-mode-dirs = ["src"]

[tool.hatch.build.targets.wheel]
packages = ["src/$package"]
"""

_README = """\
# $distribution

The connector `$name` stores items in $title.

```yaml
connector: $name
settings:
  base_url: https://$name.example.com
  token: "= secrets.${variable}_token"
```

| action | does | effect |
|---|---|---|
| `find_item` | reads one item | read |
| `put_item` | writes an item under its id | idempotent |
| `add_item` | adds an item | write |

Tested against a test server on loopback: `gos connector test .`

`declaration.json` records the interface of the last release, and the tests fail on a breaking change. Update it before the
first release and with every release after it: `gos connector declare .`
"""

_INIT = '''\
"""The connector `$name`."""

from $package.connector import $class_name

__all__ = ["$class_name"]
'''

_CONNECTOR = '''\
"""$title: one call is one HTTP request."""

import json
from urllib.parse import quote

from appliance.connectors.contract import Action, Connector, HttpRequest, Rejected, SystemFailure, parse_json, status_error

ITEM = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {"id": {"type": "string", "minLength": 1}, "name": {"type": "string"}},
}


class $class_name(Connector):
    """Items of $title."""

    contract_version = 1
    name = "$name"
    title = "$title"
    version = "0.1.0"
    settings_schema = {
        "type": "object",
        "required": ["base_url", "token"],
        "additionalProperties": False,
        "properties": {
            "base_url": {"type": "string", "pattern": "^https?://", "title": "Address", "secret_target": True},
            "token": {"type": "string", "title": "Token", "secret": True},
        },
    }
    actions = (
        Action(
            "find_item",
            "Read one item",
            {"type": "object", "required": ["id"], "properties": {"id": {"type": "string", "minLength": 1}}},
            ITEM,
            "read",
            {"id": "1"},
        ),
        Action("put_item", "Write an item under its id", ITEM, ITEM, "idempotent", {"id": "1", "name": "one"}),
        Action(
            "add_item",
            "Add an item",
            {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            ITEM,
            "write",
            {"name": "one more"},
        ),
    )

    def check(self, ctx):
        self._ask(ctx, "GET", "/health")
        return "$title answers and accepts the token."

    def call(self, action, input, ctx):
        if action == "find_item":
            return self._ask(ctx, "GET", f"/items/{quote(input['id'], safe='')}")
        if action == "put_item":
            return self._ask(ctx, "PUT", f"/items/{quote(input['id'], safe='')}", input)
        if action == "add_item":
            return self._ask(ctx, "POST", "/items", input)
        raise Rejected(f"There is no action {action!r}.")

    def _ask(self, ctx, method, path, body=None):
        headers = [
            ("Authorization", f"Bearer {self.settings['token']}"),
            ("Content-Type", "application/json"),
            # Stays the same when a call is retried, so that the other side can deduplicate.
            ("Idempotency-Key", ctx.idempotency_key),
        ]
        content = b"" if body is None else json.dumps(body).encode()
        answer = ctx.http.send(HttpRequest(method, self.settings["base_url"].rstrip("/") + path, headers, content=content))
        # A POST that reached the other side and failed there may have been performed.
        changes = method == "POST"
        if not 200 <= answer.status < 300:
            raise status_error(answer, "$title", changes=changes)
        try:
            return parse_json(answer.content)
        except ValueError as error:
            raise SystemFailure("$title did not answer in JSON.", outcome="unknown" if changes else "not_done") from error
'''

_STAND_IN = '''\
"""A stand-in for $title, for tests and local trials; use the real system instead where one is available.

    python tests/stand_in.py [FILE]     prints its URL, also writes it to FILE, and serves until it is stopped
"""

import json
import sys
import threading
from pathlib import Path

from appliance.connectors.testing import Answer, LoopbackServer

TOKEN = "secret-canary"


def make_server():
    """Start a server on loopback with one item; it accepts TOKEN."""

    def guarded(answer):
        def answered(request):
            return answer(request) if request.headers.get("authorization") == f"Bearer {TOKEN}" else Answer(401)

        return answered

    server = LoopbackServer()
    server.answers["/health"] = guarded(lambda _: Answer(body=b"{}"))
    server.answers["/items/1"] = guarded(lambda request: Answer(body=request.body or b'{"id": "1", "name": "one"}'))
    added = guarded(lambda request: Answer(201, body=json.dumps({"id": "2", **json.loads(request.body)}).encode()))
    server.answers["/items"] = added
    return server


if __name__ == "__main__":
    url = make_server().url
    print(url, "with the token", TOKEN, flush=True)
    for file in sys.argv[1:]:
        Path(file).write_text(url, "utf-8")
    threading.Event().wait()
'''

_TESTS = '''\
"""The contract suite and tests specific to $title, against a server on loopback."""

from pathlib import Path

import pytest
from $package import $class_name
from stand_in import TOKEN, make_server

from appliance.connectors.contract import RateLimited, Rejected, SystemFailure, TransientError
from appliance.connectors.suites import Compatible, Credentialed, Faulty
from appliance.connectors.testing import Answer, ConnectorContract, open_context


@pytest.fixture
def server():
    server = make_server()
    yield server
    server.close()


@pytest.fixture
def it(server):
    it = $class_name({"base_url": server.url, "token": TOKEN})
    yield it
    it.close()


@pytest.fixture
def ctx():
    with open_context() as ctx:
        yield ctx


class TestContract(Credentialed, Faulty, Compatible, ConnectorContract):
    connector = $class_name
    # The interface of the last release; `gos connector declare .` updates it for the next.
    declaration = Path(__file__).parents[1] / "declaration.json"

    @pytest.fixture
    def settings(self, server):
        return {"base_url": server.url, "token": TOKEN}

    @pytest.fixture
    def wrong_settings(self, server):
        return {"base_url": server.url, "token": "wrong-canary"}

    @pytest.fixture
    def broken_settings(self):
        return {"base_url": "http://127.0.0.1:1", "token": TOKEN}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(429, {"Retry-After": "7"}), RateLimited),
        (Answer(404), Rejected),
        (Answer(503), TransientError),
        (Answer(body=b"<html>"), SystemFailure),
    ],
)
def test_what_goes_wrong_has_its_class(server, it, ctx, answer, error):
    server.answers["/items/1"] = lambda _: answer
    with pytest.raises(error) as caught:
        it.call("find_item", {"id": "1"}, ctx)
    assert getattr(caught.value, "retry_after", 7) == 7


def test_a_write_that_failed_over_there_may_have_been_done(server, it, ctx):
    server.answers["/items"] = lambda _: Answer(500)
    with pytest.raises(TransientError) as caught:
        it.call("add_item", {"name": "x"}, ctx)
    assert caught.value.outcome == "unknown"


def test_the_idempotency_key_goes_along(server, it, ctx):
    it.call("add_item", {"name": "x"}, ctx)
    assert server.received[-1].headers["idempotency-key"] == ctx.idempotency_key
'''
