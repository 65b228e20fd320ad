"""/api/v1/integrations/{slug}/actions: list, search and show the actions of an integration."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.fields import Cursor, ExactCount, Limit
from appliance.api.frame.routing import Acts, Call, Query, View, route
from appliance.connectors.contract import Action
from appliance.core.pages import DEFAULT_LIMIT, Page, PageRequest

Effect = Literal["read", "idempotent", "write"]


class ActionView(View):
    """An action; `effect` is the strongest effect it can have on the foreign system, `withheld` why it is not offered now."""

    name: Annotated[str, Field(description="The name sent as `action` to execute it, unique within the connector.")]
    summary: Annotated[str, Field(description="One sentence on what the action does.")]
    effect: Annotated[
        Effect, Field(description="The strongest effect on the foreign system: it only reads, can be repeated safely, or writes.")
    ]
    input: Annotated[dict[str, Any], Field(description="JSON Schema of the `input` to send.")]
    output: Annotated[dict[str, Any], Field(description="JSON Schema of the `output` of a call that succeeded.")]
    sample: Annotated[dict[str, Any], Field(description="An example of the output, used where the action is not executed.")]
    withheld: Annotated[
        str | None, Field(description="Why the action cannot be executed with the present settings; absent if it can.")
    ] = None


class ActionsQuery(Query):
    """`q` lists words that must all occur in an action's name or summary."""

    q: Annotated[str, Field(max_length=200, description=(
        "Words that must all occur in the name or summary, at most 200 characters; empty for all actions."
    ))] = ""
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor = None
    count: ExactCount = None

    @property
    def page(self) -> PageRequest:
        return PageRequest(self.limit, self.cursor, count=self.count == "exact")


class ListedActionView(View):
    """An action without its schemas."""

    name: Annotated[str, Field(description="The name sent as `action` to execute it, unique within the connector.")]
    summary: Annotated[str, Field(description="One sentence on what the action does.")]
    effect: Annotated[
        Effect, Field(description="The strongest effect on the foreign system: it only reads, can be repeated safely, or writes.")
    ]


def action_view(action: Action) -> ActionView:
    return ActionView(
        name=action.name, summary=action.summary, effect=action.effect, input=dict(action.input), output=dict(action.output),
        sample=dict(action.sample), withheld=action.withheld or None,
    )  # fmt: skip


@route(
    "GET", "/integrations/{slug}/actions", scope="integrations.read", query=ActionsQuery, returns=ListedActionView, listed=True,
    acts=Acts("list_tenant_integrations"),
)  # fmt: skip
def list_actions(call: Call, slug: str) -> Page[ListedActionView]:
    """List or search the actions of an integration.

    Sorted by name; `q` searches.

    If the connector discovers actions from the foreign system, these are the ones found when the settings were last tested.
    """
    query: ActionsQuery = call.query
    actions = call.services.integrations.search_actions(call.scope, slug, query.q, query.page)
    return actions.map(lambda each: ListedActionView(name=each.name, summary=each.summary, effect=each.effect))


@route("GET", "/integrations/{slug}/actions/{action}", scope="integrations.read", returns=ActionView)
def get_action(call: Call, slug: str, action: str) -> ActionView:
    """Show an action of an integration.

    With the schemas of its input and output, its effect and a sample.
    """
    return action_view(call.services.integrations.get_action(call.scope, slug, action))
