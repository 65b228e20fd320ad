"""Runs declarative connectors: one class per YAML file, driven by its plan."""

from typing import Any, ClassVar

from appliance.connectors.contract import (
    ConfigError,
    Connector,
    Context,
    Effect,
    Json,
    Polled,
    SystemFailure,
)
from appliance.connectors.declarative.answers import read_answer, sentence
from appliance.connectors.declarative.pages import PagedRequest, most_of, read_pages
from appliance.connectors.declarative.plan import ActionPlan, ConnectorPlan
from appliance.connectors.declarative.polling import poll
from appliance.connectors.declarative.requests import build_request
from appliance.connectors.declarative.templates import fill_tree


class DeclarativeConnector(Connector):
    """A connector driven by a plan; see `make_connector`."""

    plan: ClassVar[ConnectorPlan]
    previews = True

    def check(self, ctx: Context) -> str:
        check = self.plan.check
        request = build_request(self.plan, check.request, self._values(ctx))
        answer = ctx.http.send(request)
        body = read_answer(answer, (*check.errors, *self.plan.errors), self.plan.title, "read")
        return sentence(check.message, {"answer": body}) or f"{self.plan.title} answered."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        planned = self.plan.actions.get(action)
        if planned is None:
            raise ConfigError(f"There is no action {action!r}.")
        values = {**self._values(ctx), "input": input}
        return self._list(planned, values, ctx) if planned.pages is not None else self._one(planned, values, ctx)

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        planned = self.plan.triggers.get(trigger)
        if planned is None:
            return super().poll(trigger, query, cursor, ctx)
        return poll(self.plan, planned, {**self._values(ctx), "query": query}, cursor, ctx.http.send)

    def _one(self, planned: ActionPlan, values: dict[str, Any], ctx: Context) -> dict[str, Any]:
        effect = planned.action.effect
        answer = ctx.http.send(build_request(self.plan, planned.request, values))
        body = read_answer(answer, (*planned.errors, *self.plan.errors), self.plan.title, effect)
        if planned.result is not None:
            filled: dict[str, Any] = fill_tree(planned.result, {"answer": body, "input": values["input"]})
            return filled
        if body is None:
            return {}
        if not isinstance(body, dict):
            raise self._no_object(effect)
        return body

    def _list(self, planned: ActionPlan, values: dict[str, Any], ctx: Context) -> dict[str, Any]:
        """Return `{items, complete}`, or the action's `result` filled from them and the last page's response."""
        if planned.pages is None:
            raise AssertionError("only actions with pages come here")
        most = most_of(planned.pages, values)
        question = PagedRequest(self.plan, planned.request, planned.pages, planned.errors, values, planned.action.effect)
        items: list[Any] = []
        complete, body = False, None
        for page in read_pages(question, ctx.http.send):
            items += page.items
            body = page.body
            complete = page.last and len(items) <= most
            if len(items) >= most:
                break
        items = items[:most]
        if planned.item is not None:
            items = [fill_tree(planned.item, {"item": item, "input": values["input"]}) for item in items]
        if planned.result is None:
            return {"items": items, "complete": complete}
        values_of_result = {"answer": body, "items": items, "complete": complete, "input": values["input"]}
        filled: dict[str, Any] = fill_tree(planned.result, values_of_result)
        return filled

    def _no_object(self, effect: Effect) -> SystemFailure:
        outcome: Any = "not_done" if effect == "read" else "unknown"
        return SystemFailure(f"{self.plan.title} answered something that is no object.", outcome=outcome)

    def _values(self, ctx: Context) -> dict[str, Any]:
        return {"settings": self.settings, "call": {"key": ctx.idempotency_key}}


def make_connector(plan: ConnectorPlan) -> type[DeclarativeConnector]:
    """Create the connector class of a plan."""
    members = {
        "contract_version": 1, "name": plan.name, "title": plan.title, "version": plan.version, "plan": plan,
        "tested_against": plan.tested_against,
        "settings_schema": plan.settings, "actions": tuple(each.action for each in plan.actions.values()),
        "triggers": tuple(each.trigger for each in plan.triggers.values()),
    }  # fmt: skip
    return type("".join(map(str.capitalize, plan.name.split("-"))) + "Connector", (DeclarativeConnector,), members)
