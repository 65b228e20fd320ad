"""The schemas of people and groups that this appliance stores, and their conversion from and to its records."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field
from scim2_models import (
    URN,
    AuthenticationScheme,
    Bulk,
    CaseExact,
    ChangePassword,
    ComplexAttribute,
    ETag,
    Filter,
    Meta,
    Mutability,
    Patch,
    Reference,
    Required,
    Resource,
    ScimPolicy,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
    Uniqueness,
)

from appliance.tenants.provisioning import GroupFields, GroupRecord, UserFields, UserRecord

MOST_RESULTS = 200
# Providers send attributes that are not stored here, values beside `remove`, and paths to entries that do not exist yet.
POLICY = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)
STORED = ("displayName", "name", "emails")


class Name(ComplexAttribute):
    formatted: str | None = None
    family_name: str | None = None
    given_name: str | None = None


class Email(ComplexAttribute):
    value: str | None = None
    type: str | None = None
    primary: bool | None = None


class GroupOfUser(ComplexAttribute):
    value: Annotated[str | None, Mutability.read_only] = None
    display: Annotated[str | None, Mutability.read_only] = None


class User(Resource[Any]):
    """A person."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[str | None, Uniqueness.server, Required.true] = None
    """The login of the account, unique in the appliance."""

    display_name: str | None = None
    """The person's name, for display."""

    name: Name | None = None
    """The components of the person's name."""

    emails: list[Email] | None = None
    """E-mail addresses of the person."""

    active: Annotated[bool | None, Required.true] = None
    """Whether the person may use this appliance."""

    groups: Annotated[list[GroupOfUser] | None, Mutability.read_only] = None
    """The groups that the person belongs to."""


class Member(ComplexAttribute):
    value: Annotated[str | None, Mutability.immutable, CaseExact.true] = None
    ref: Annotated[Reference["User"] | None, Mutability.immutable] = Field(
        None, serialization_alias="$ref", validation_alias="$ref"
    )


class Group(Resource[Any]):
    """A group of people."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:Group")

    display_name: Annotated[str | None, Required.true] = None
    """The name that the rules of the configuration refer to."""

    members: list[Member] | None = None
    """The people in the group."""


CONFIG = ServiceProviderConfig(
    documentation_uri=None,
    patch=Patch(supported=True),
    bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
    filter=Filter(supported=True, max_results=MOST_RESULTS),
    change_password=ChangePassword(supported=False),
    sort=Sort(supported=False),
    etag=ETag(supported=False),
    authentication_schemes=[
        AuthenticationScheme(
            type=AuthenticationScheme.Type.oauthbearertoken, name="Bearer token", description="A token of `gos scim token`.",
            spec_uri="https://www.rfc-editor.org/info/rfc6750", primary=True,
        )
    ],
)  # fmt: skip
PROVIDER = ScimProvider(models=[User, Group], config=CONFIG, policy=POLICY)


def user_resource(record: UserRecord, base_url: str) -> User:
    """The person as a resource."""
    return User.model_validate({
        "schemas": [str(User.__schema__)], "id": record.id, "userName": record.user_name, "externalId": record.external_id,
        "active": record.active, **{name: record.attributes[name] for name in STORED if name in record.attributes},
        "groups": [{"value": group_id, "display": name} for group_id, name in record.groups] or None,
        "meta": _meta("User", f"{base_url}/Users/{record.id}", record),
    })  # fmt: skip


def group_resource(record: GroupRecord, base_url: str) -> Group:
    """The group as a resource."""
    return Group.model_validate({
        "schemas": [str(Group.__schema__)], "id": record.id, "displayName": record.display_name,
        "externalId": record.external_id,
        "members": [{"value": each, "$ref": f"{base_url}/Users/{each}"} for each in record.members] or None,
        "meta": _meta("Group", f"{base_url}/Groups/{record.id}", record),
    })  # fmt: skip


def _meta(kind: str, location: str, record: UserRecord | GroupRecord) -> Meta:
    created, changed = (datetime.fromtimestamp(at / 1000, UTC) for at in (record.created_at, record.updated_at))
    return Meta(resource_type=kind, location=location, created=created, last_modified=changed)


def user_fields(user: User) -> UserFields:
    """What the provider says of the person."""
    values = user.model_dump()
    return UserFields(
        user_name=user.user_name or "", external_id=user.external_id, active=bool(user.active),
        attributes={name: values[name] for name in STORED if name in values},
    )  # fmt: skip


def group_fields(group: Group) -> GroupFields:
    """What the provider says of the group; it has no members unless they are said."""
    members = frozenset(each.value or str(each.ref or "").rpartition("/")[2] for each in group.members or ())
    return GroupFields(display_name=group.display_name or "", external_id=group.external_id, members=members)
