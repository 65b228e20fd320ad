"""Builds what Quart serves: console, documentation, inbound webhooks, SCIM, and what of the API is not answered without it."""

from typing import cast

from quart import request

from appliance.api import make_blueprint, make_docs
from appliance.console import register as register_console
from appliance.core.config import Config
from appliance.core.confinement import memory
from appliance.core.interface import ui_folder
from appliance.hooks import make_hooks
from appliance.scim import make_scim
from appliance.sites import make_demo
from appliance.sites.front import build_root
from appliance.web import App, Services, make_quart


def build_pages(config: Config, services: Services) -> App:
    """Quart with the blueprints of all edges."""
    templates = ui_folder() / "templates"
    quart = make_quart(templates)
    if config.otlp.endpoint:
        quart.before_request(_name_route)
    quart.register_blueprint(make_blueprint(services))
    quart.register_blueprint(make_docs(services, templates / "docs" / "explorer.html"))
    quart.register_blueprint(make_hooks(services))
    quart.register_blueprint(make_scim(services))
    register_console(quart, services)
    if config.demo.order_system:
        quart.register_blueprint(make_demo())
    quart.register_blueprint(build_root(config, services.threads))
    memory.keep_loaded()  # Quart and the pages, which no collection of garbage needs to look at
    return cast(App, quart)


async def _name_route() -> None:
    """Record the route template of the request, which names its span."""
    if request.url_rule is not None:
        request.scope["gos.route"] = request.url_rule.rule  # type: ignore[typeddict-unknown-key]
