"""One valid request for every route of WebApps."""

import hashlib
from collections.abc import Callable

from appliance.solutions import write_zip
from tests.api.example import Example
from tests.api.resources import Resources, fresh


def _webapp(tenant: Resources) -> str:
    return tenant.once("webapp", tenant.webapp)


def _second(tenant: Resources) -> Example:
    return Example({"app": _webapp(tenant), "version": "2"})


def _checked(tenant: Resources) -> Example:
    """A version that was published with its checks."""
    app = tenant.webapp()
    archive = write_zip({"app.yaml": b"smoke: [{path: /}]", "public/index.html": b"<h1>checked</h1>"})
    headers = {"Content-Type": "application/zip"}
    tenant.ask("POST", f"/webapps/{app}/versions", None, content=archive, headers=headers)
    tenant.ask("POST", f"/webapps/{app}/versions/3/publish?wait=60", {})
    return Example({"app": app, "version": "3"})


def _archive(tenant: Resources) -> Example:
    archive = write_zip({"app.yaml": b"spa: true", "public/index.html": b"<h1>by an archive</h1>"})
    return Example({"app": _webapp(tenant)}, archive, {"message": "by a test"}, media="application/zip")


def _content(tenant: Resources) -> Example:
    content = fresh("content").encode()
    path = {"app": tenant.uploading_webapp(content), "version": "1", "sha256": hashlib.sha256(content).hexdigest()}
    return Example(path, content, media="application/octet-stream")


def _contents(tenant: Resources) -> Example:
    content = fresh("content").encode()
    return Example({"app": tenant.uploading_webapp(content), "version": "1"}, write_zip({"any": content}), media="application/zip")


def _visit(tenant: Resources) -> Example:
    app = _webapp(tenant)
    return Example({"app": app, "visit": tenant.visit(app)})


WEBAPPS: dict[str, Callable[[Resources], Example]] = {
    "list_webapps": lambda tenant: Example(),
    "get_webapp": lambda tenant: Example({"app": _webapp(tenant)}),
    "create_webapp": lambda tenant: Example(body={"id": fresh("made"), "name": "Made", "description": "by a test"}),
    "change_webapp": lambda tenant: Example({"app": _webapp(tenant)}, {"name": "Renamed"}),
    "delete_webapp": lambda tenant: Example({"app": tenant.webapp()}, query={"force": "true"}),
    "list_webapp_versions": lambda tenant: Example({"app": _webapp(tenant)}),
    "create_webapp_version": _archive,
    "get_webapp_version": _second,
    "get_webapp_diff": _second,
    "put_webapp_content": _content,
    "put_webapp_contents": _contents,
    "finalize_webapp_version": _second,
    "publish_webapp": lambda tenant: Example({"app": tenant.webapp(), "version": "1"}, {"if_current": 2}),
    "preview_webapp": lambda tenant: Example({"app": _webapp(tenant), "version": "1"}, {"expires_in": "1h"}),
    "get_webapp_publication": _checked,
    "roll_back_webapp": lambda tenant: Example({"app": tenant.webapp()}, {"version": 1}),
    "list_visits": lambda tenant: Example({"app": _webapp(tenant)}),
    "revoke_visit": _visit,
    "list_webapp_requests": lambda tenant: Example({"app": _webapp(tenant)}, query={"status": "2xx", "path": "/*", "since": "1h"}),
    "get_webapp_analytics": lambda tenant: Example({"app": _webapp(tenant)}, query={"since": "6h", "bucket": "1h"}),
    "unpublish_webapp": lambda tenant: Example({"app": tenant.webapp()}),
}
