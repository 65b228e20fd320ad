"""`gos deploy` against a live appliance: only new contents are sent, and errors are reported."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from appliance.cli import main
from appliance.testing.running import Running
from tests.api.resources import fresh

Gos = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gos(running: Running, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gos:
    """`gos …` for tenant acme: exit code, output, errors."""
    monkeypatch.setenv("GOS_URL", running.config.tenant_url("acme"))
    monkeypatch.setenv("GOS_API_KEY", acme.headers["x-api-key"])

    def run(*args: object) -> tuple[int, str, str]:
        code = main([str(arg) for arg in args])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """The output of a build: several files, some of them equal, one that must not be published."""
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(f"<h1>{fresh('page')}</h1>")
    (folder / "assets" / "app-3f2a1b9c.js").write_text(f"let a = '{fresh('script')}'")
    (folder / "assets" / "again-3f2a1b9c.js").write_text((folder / "assets" / "app-3f2a1b9c.js").read_text())
    (folder / "note.txt").write_text(fresh("note"))
    (folder / ".env").write_text("SECRET=1")
    return folder


def test_a_folder_becomes_a_version_and_only_what_changed_is_sent(gos: Gos, built: Path, running: Running) -> None:
    app = f"cli{fresh('d')}"
    code, out, errors = gos("deploy", app, built)
    assert (code, out) == (1, "")
    assert f"there is no WebApp '{app}'" in errors
    code, out, errors = gos("deploy", app, built, "--create", "--message", "first", "--commit", "abc123")
    assert code == 0
    size = sum(path.stat().st_size for path in built.rglob("*.*") if path.name != ".env")
    once = size - (built / "assets" / "app-3f2a1b9c.js").stat().st_size
    assert errors == f"4 files hashed, {size} bytes\n3 of 3 contents sent, {once} of {once} bytes\n"
    assert out == f"{app} version 1: 4 files, 3 uploaded, ready; --publish serves it\n"
    (built / "index.html").write_text(f"<h1>{fresh('page')}</h1>")
    code, out, errors = gos("deploy", app, built, "--publish", "--json")
    version = json.loads(out)
    assert (code, errors, version["version"], version["uploaded"], version["state"]) == (0, "", 2, 1, "published")
    with running.client(f"{app}--acme.content.localhost") as visitor:
        assert visitor.get("/").text == (built / "index.html").read_text()
        assert visitor.get("/.env").status_code == 404
    code, _, errors = gos("deploy", app, built, "--publish", "--if-current", "1")
    assert (code, "version 2 is published now" in errors) == (1, True)


def test_a_deploy_without_a_change_makes_no_version(gos: Gos, built: Path) -> None:
    app = f"cli{fresh('d')}"
    assert gos("deploy", app, built, "--create")[0] == 0
    code, out, errors = gos("deploy", app, built)
    assert (code, out) == (0, f"{app} version 1: 4 files, 0 uploaded, ready; --publish serves it\n")
    assert "nothing has changed since version 1" in errors
    assert json.loads(gos("deploy", app, built, "--publish", "--json")[1])["version"] == 1
    version = json.loads(gos("deploy", app, built, "--publish", "--json")[1])
    assert (version["version"], version["state"]) == (1, "published")
    (built / "_headers").write_text("/*\n  X-One: 1\n")
    assert json.loads(gos("deploy", app, built, "--json")[1])["version"] == 2
    route = {"path": "/api/x", "process": "x", "method": "POST", "access": "public"}
    about = {"redirects": "/old /new 301", "routes": [route], "smoke": [{"path": "/", "contains": "page"}]}
    (built / "app.yaml").write_text(json.dumps(about))
    assert [json.loads(gos("deploy", app, built, "--json")[1])["version"] for _ in range(2)] == [3, 3]


def test_a_built_folder_needs_no_app_yaml(gos: Gos, built: Path, running: Running) -> None:
    app = f"cli{fresh('d')}"
    (built / "example.py").write_text("print(1)")
    assert gos("deploy", app, built, "--create", "--publish", "--spa")[0] == 0
    with running.client(f"{app}--acme.content.localhost") as visitor:
        assert visitor.get("/some/page", headers={"Accept": "text/html"}).text == (built / "index.html").read_text()
        assert visitor.get("/example.py").headers["content-type"] == "text/plain; charset=utf-8"


def test_hundreds_of_files_take_a_handful_of_requests(
    gos: Gos, acme: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = f"cli{fresh('d')}"
    for number in range(400):
        (tmp_path / f"page{number}.html").write_text(fresh("page"))
    limit = {"name": "few", "scopes": ["webapps.read", "webapps.write"], "rate_limit": {"requests": 1000, "window_s": 3600}}
    key = acme.post("/api/v1/keys", json=limit).json()["data"]["key"]
    monkeypatch.setenv("GOS_API_KEY", key)
    code, out, errors = gos("deploy", app, tmp_path, "--create")
    assert (code, out) == (0, f"{app} version 1: 400 files, 400 uploaded, ready; --publish serves it\n"), errors
    (tmp_path / "page7.html").write_text(fresh("page"))
    assert ", 1 uploaded," in gos("deploy", app, tmp_path)[1]
    left = acme.get("/api/v1/webapps", headers={"X-API-Key": key}).headers["RateLimit"]
    assert 1000 - int(left.partition("r=")[2].partition(";")[0]) <= 17


def test_app_yaml_next_to_public_configures_the_app(gos: Gos, tmp_path: Path, running: Running) -> None:
    app = f"cli{fresh('d')}"
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "index.html").write_text("<h1>one page</h1>")
    (tmp_path / "notes.txt").write_text("not served")
    (tmp_path / "app.yaml").write_text("spa: true\nredirects: |\n  /old /new 302\n")
    assert gos("deploy", app, tmp_path, "--create", "--publish")[0] == 0
    with running.client(f"{app}--acme.content.localhost") as visitor:
        assert visitor.get("/any/where").text == "<h1>one page</h1>"
        assert visitor.get("/old").headers["location"] == "/new"
        assert visitor.get("/notes.txt").status_code == 404


def test_a_failed_deploy_explains_itself(gos: Gos, built: Path, tmp_path: Path) -> None:
    app = f"cli{fresh('d')}"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no files to deploy" in gos("deploy", app, empty)[2]
    assert "no files to deploy" in gos("deploy", app, tmp_path / "absent")[2]
    (built / "_redirects").write_text("/a /b 999\n")
    code, _, errors = gos("deploy", app, built, "--create")
    assert (code, "_redirects line 1: the status 999" in errors) == (1, True)
    (built / "_redirects").unlink()
    (built / "_redirects").symlink_to("/etc/passwd")
    code, _, errors = gos("deploy", app, built)
    assert (code, "_redirects is a symbolic link" in errors) == (1, True)


def test_a_version_that_fails_its_checks_is_not_published_and_says_why(gos: Gos, tmp_path: Path, running: Running) -> None:
    app = f"cli{fresh('d')}"
    (tmp_path / "public").mkdir()
    page = tmp_path / "public" / "index.html"
    page.write_text("<h1>one</h1>")
    (tmp_path / "app.yaml").write_text("smoke:\n  - {path: /, contains: one}\n")
    assert gos("deploy", app, tmp_path, "--create", "--publish")[0] == 0
    page.write_text(two := f"<h1>{fresh('two')}</h1>")
    code, out, errors = gos("deploy", app, tmp_path, "--publish")
    assert (code, out) == (1, f"{app} version 2: 1 files, 1 uploaded, not published\n")
    assert f"preview GET /: 'one' is not in the response\n    | {two}\n" in errors
    (tmp_path / "app.yaml").write_text("smoke:\n  - {path: /, header: {X-Robots-Tag: noindex}}\n")  # only a preview says so
    code, out, errors = gos("deploy", app, tmp_path, "--publish", "--json")
    version = json.loads(out)
    assert (code, errors, version["state"], version["publication"]["state"]) == (1, "", "ready", "switched_back")
    with running.client(f"{app}--acme.content.localhost") as visitor:
        assert visitor.get("/").text == "<h1>one</h1>"
    code, _, errors = gos("deploy", app, tmp_path, "--publish", "--if-current", "7")
    assert (code, "version 1 is published now" in errors) == (1, True)
