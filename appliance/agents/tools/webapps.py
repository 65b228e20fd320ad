"""The tool that publishes a version of a WebApp."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from appliance.webapps.publishing import Publisher

from .shapes import TEXT, Shape, inputs, outputs
from .tool import Caller, Hints, PendingResult, Tool


@dataclass(frozen=True)
class WebAppTools:
    """Tools for WebApps; `version` renders a version, `publication` the progress of its publication."""

    publishing: Publisher
    version: Shape
    publication: Shape

    def tools(self) -> list[Tool]:
        """`publish_webapp`."""
        arguments = inputs(
            ("app", "version"), app=TEXT, version={"type": "integer", "minimum": 1, "maximum": 10**9},
            if_current={
                "type": "integer", "minimum": 0, "maximum": 10**9, "description": "The version published now, 0 for none.",
            },
            wait={"type": "number", "minimum": 0, "maximum": 60, "default": 30, "description": "Seconds to wait for its checks."},
        )  # fmt: skip
        output = outputs(("state",), state={"enum": ["published", "checking"]}, version=self.version.schema,
                       publication=self.publication.schema)  # fmt: skip
        return [
            Tool(
                name="publish_webapp", title="Publish a WebApp",
                description=(
                    "Publishes this version once its smoke checks have passed. While they run, the result is `state: checking`; if "
                    "they fail, the call fails with their findings."
                ),
                input_schema=arguments, output_schema=output, effect="write", scopes=frozenset({"webapps.publish"}),
                call=self.publish, hints=Hints(destructive=True, idempotent=True), consumes=True,
            )
        ]  # fmt: skip

    def publish(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any] | PendingResult:
        """Like POST /webapps/{app}/versions/{version}/publish."""
        scope, app, number = caller.scope, arguments["app"], arguments["version"]
        over: Future[None] | None = None
        if not caller.has_started:  # publishing again could undo an unpublish that happened since the crash
            expected = arguments.get("if_current")
            started = self.publishing.publish_version(scope, app, number, if_current=expected, also=caller.consume)
            if started.version is not None:
                return {"state": "published", "version": self.version.show(started.version)}
            over = started.future

        def look(last: bool) -> dict[str, Any] | None:
            version = self.publishing.find_published(scope, app, number)
            if version is not None:
                return {"state": "published", "version": self.version.show(version)}
            publication = self.publishing.get_publication(scope, app, number)
            return {"state": "checking", "publication": self.publication.show(publication)} if last else None

        return look(False) or PendingResult(look, float(arguments.get("wait", 30)), over)
