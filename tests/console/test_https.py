"""The console explains when a browser would drop its cookies."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.console.frame.content_policy import content_policy
from appliance.console.frame.rendering import Renderer
from appliance.console.frame.routing import Arrival, ConsoleRequest, Page
from appliance.console.frame.session import safe_target
from appliance.console.pages.start.sign_in import show_sign_in, sign_in
from appliance.core.interface import ui_folder
from appliance.testing.running import Running, make_config
from tests.web.scopes import request_to


@pytest.mark.parametrize("target", ["/console/executions?state=failed", "/console/processes/a?from=exe_1"])
def test_paths_of_the_console_are_accepted(target: str) -> None:
    assert safe_target(target) == target


@pytest.mark.parametrize("handler", [show_sign_in, sign_in])
def test_plain_http_off_loopback_is_explained(running: Running, tmp_path: Path, handler: type) -> None:
    config = make_config(tmp_path, domains__base="gos.example.com")
    services = replace(running.services, config=config)
    request = ConsoleRequest(request_to(f"gos.example.com:{config.server.port}", "/sign-in"))
    answer = handler(Arrival(services, request, None))
    assert isinstance(answer, Page)
    assert answer.status == 426
    html = Renderer(ui_folder() / "templates", ui_folder() / "static", config).render(answer, request, None)
    assert all(way in html for way in ("server.tls: internal", "server.tls: files", "server.trusted_proxies"))


def test_forms_can_only_post_to_hosts_of_the_appliance(tmp_path: Path) -> None:
    config = make_config(tmp_path, domains__base="gos.example.com", server__public_port=443, server__tls="internal")
    directives = dict(part.strip().split(" ", 1) for part in content_policy(config).split(";"))
    assert directives["form-action"] == "'self' https://gos.example.com https://*.gos.example.com"
    assert directives["default-src"] == directives["frame-ancestors"] == directives["base-uri"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == directives["connect-src"] == "'self'"
