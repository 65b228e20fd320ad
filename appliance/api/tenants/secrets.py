"""/api/v1/secrets: secrets, whose values are write-only, and the destinations each is bound to."""

from typing import Annotated

from pydantic import Field

from appliance.api.frame.fields import AS_OBJECT, AS_TEXT, TEXT_OR_OBJECT, CreatedAt
from appliance.api.frame.routing import Body, Call, View, route
from appliance.core import clock
from appliance.core.errors import Conflict, NotFound
from appliance.core.pages import Page
from appliance.core.sentences import Sentence
from appliance.solutions import find_place
from appliance.tenants import SecretName, service
from appliance.tenants.grants import Binding, Kind, SecretDestination, secret_bindings

from .tenants import DeletedView, NoQuery

Target = Annotated[str, Field(min_length=1, max_length=80)]
Hosts = Annotated[
    str,
    Field(
        min_length=1, max_length=500,
        description="Host names that may receive the secret, separated by commas, such as `api.example.com`."
    ),
]
DestinationKind = Annotated[
    Kind, Field(description="What uses the secret; `process` is its code, `webhook` the check of calls that start a process.")
]
Destination = Annotated[str, Field(description="Slug of the integration or LLM profile, or id of the process or WebApp.")]


class BindingView(View):
    """A destination the secret may be sent to: `hosts` are those of an integration or LLM profile; it may end at `expires_at`."""

    id: Annotated[str, Field(description="Identifies the destination among those of its secret; `sbd_…`.")]
    kind: DestinationKind
    target: Destination
    hosts: Annotated[
        str | None,
        Field(description="Where an integration or LLM profile may send it, separated by commas; absent for other kinds."),
    ] = None
    bound_by: Annotated[str, Field(description="Who added the destination: `user:…`, `key:…` or `system`.")]
    created_at: CreatedAt
    expires_at: Annotated[
        str | None, Field(description="When the destination ends by itself, RFC 3339 in UTC; absent if it does not.")
    ] = None


class SecretView(View):
    """A secret with the destinations it may be sent to, without its value."""

    name: Annotated[str, Field(description="How processes and settings refer to it: at most 63 letters, digits and underscores.")]
    updated_at: Annotated[str, Field(description="When its value was last set, RFC 3339 in UTC with milliseconds.")]
    bindings: Annotated[list[BindingView], Field(description="The only destinations that may receive the value.")]


class BoundIntegration(Body):
    """An integration with its current settings, or with exactly these `hosts` (`api.example.com`)."""

    slug: Annotated[Target, Field(description="Name of the integration in addresses, such as `erp`.")]
    hosts: Hosts | None = None


class Bind(Body):
    """Destinations to add: integrations by slug, and processes by id, whose code reads the secret with `api.secrets.get`."""

    integrations: Annotated[
        list[Annotated[Annotated[Target, AS_TEXT] | Annotated[BoundIntegration, AS_OBJECT], TEXT_OR_OBJECT]],
        Field(max_length=50, description="Integrations by slug, or with exactly these hosts; at most 50."),
    ] = Field(default_factory=list)
    processes: Annotated[
        list[Target], Field(max_length=50, description="Slugs of processes whose code may read the secret; at most 50.")
    ] = Field(default_factory=list)


class PutSecret(Body):
    value: Annotated[
        str,
        Field(min_length=1, max_length=65_536, description="The text to seal; it replaces the previous one and is never shown."),
    ]
    bind: Annotated[Bind | None, Field(description="Destinations to add; those the secret already has stay.")] = None


class AddBinding(Body):
    """`kind` is integration, process (its code), webhook (of a process), llm-profile or webapp; `target` is its slug or id.

    With `hosts`, the destination is an integration or LLM profile with exactly these hosts, even if it does not exist yet.
    """

    kind: DestinationKind
    target: Annotated[Target, Field(description="Slug of the integration or LLM profile, or id of the process or WebApp.")]
    hosts: Hosts | None = None


def binding_view(binding: Binding) -> BindingView:
    place = binding.destination
    return BindingView(
        id=binding.id, kind=place.kind, target=place.target, hosts=place.hosts or None, bound_by=binding.bound_by,
        created_at=clock.rfc3339(binding.created_at), expires_at=clock.optional_rfc3339(binding.expires_at),
    )  # fmt: skip


def secret_view(secret: SecretName, bindings: list[Binding]) -> SecretView:
    mine = [binding_view(each) for each in bindings if each.name == secret.name]
    return SecretView(name=secret.name, updated_at=clock.rfc3339(secret.updated_at), bindings=mine)


@route("GET", "/secrets", scope="secrets.write", returns=SecretView, listed=True, query=NoQuery)
def list_secrets(call: Call) -> Page[SecretView]:
    """List the tenant's secrets.

    Their names and destinations; values are never shown. The list has no pages.
    """
    bindings = secret_bindings.list_bindings(call.scope)
    return Page([secret_view(secret, bindings) for secret in service.list_secrets(call.scope)])


@route("PUT", "/secrets/{name}", scope="secrets.write", body=PutSecret, returns=SecretView, errors=(Conflict, NotFound))
def set_secret(call: Call, name: str) -> SecretView:
    """Set a secret and its destinations.

    The value is sealed and can be replaced, but not read. `bind` adds destinations. Saving, publishing or applying something
    that uses the secret, with this scope, also adds it as a destination.
    """
    body: PutSecret = call.body
    places = _places(call, body.bind or Bind())
    stored = service.set_secret(call.scope, call.services.sealer, name, body.value)
    for place in places:
        secret_bindings.bind(call.scope, name, place)
    return secret_view(stored, secret_bindings.list_bindings(call.scope, name))


def _places(call: Call, bind: Bind) -> list[SecretDestination]:
    integrations = [BoundIntegration(slug=each) if isinstance(each, str) else each for each in bind.integrations]
    places = [find_place(call.services.referrers, call.scope, "integration", each.slug, each.hosts or "") for each in integrations]
    return places + [find_place(call.services.referrers, call.scope, "process", each) for each in bind.processes]


@route("DELETE", "/secrets/{name}", scope="secrets.write", returns=DeletedView)
def delete_secret(call: Call, name: str) -> DeletedView:
    """Delete a secret with its destinations.

    What refers to the secret by name fails until one of this name is stored again.
    """
    service.delete_secret(call.scope, name)
    return DeletedView(deleted=name)


@route("POST", "/secrets/{name}/bindings", scope="secrets.write", body=AddBinding, returns=BindingView, errors=(Conflict,))
def add_secret_binding(call: Call, name: str) -> BindingView:
    """Add a destination of a secret.

    An integration, a process, the webhooks of a process, an LLM profile or a WebApp.
    """
    if name not in {each.name for each in service.list_secrets(call.scope)}:
        raise NotFound(Sentence("there is no secret %(name)s; set it first", name=repr(name[:63])))
    body: AddBinding = call.body
    place = find_place(call.services.referrers, call.scope, body.kind, body.target, body.hosts or "")
    return binding_view(secret_bindings.bind(call.scope, name, place))


@route("DELETE", "/secrets/{name}/bindings/{binding_id}", scope="secrets.write", returns=DeletedView)
def remove_secret_binding(call: Call, name: str, binding_id: str) -> DeletedView:
    """Remove a destination of a secret.

    Uses of the secret there fail from then on.
    """
    secret_bindings.unbind(call.scope, name, binding_id)
    return DeletedView(deleted=binding_id)
