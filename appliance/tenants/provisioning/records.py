"""What passes between providers and the provisioned people and groups."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.tenants import people

R = TypeVar("R")
Field = Literal["id", "login", "external_id", "active", "display_name", "member"]


LONGEST_EXTERNAL_ID = 500
MOST_ATTRIBUTES = 16 << 10


def check_external_id(external_id: str | None) -> None:
    """ValidationFailed for what cannot be stored."""
    if external_id is not None and (len(external_id) > LONGEST_EXTERNAL_ID or not external_id.isprintable()):
        raise ValidationFailed(
            Sentence("externalId can have at most %(longest)s printable characters", longest=LONGEST_EXTERNAL_ID),
            pointer="/externalId",
        )


@dataclass(frozen=True)
class UserFields:
    """What a provider says of a person."""

    user_name: str
    external_id: str | None
    active: bool
    attributes: Mapping[str, Any]

    def check(self) -> str:
        """The login of the person; ValidationFailed."""
        check_external_id(self.external_id)
        if len(json.dumps(self.attributes)) > MOST_ATTRIBUTES:
            raise ValidationFailed(
                Sentence("name and emails of a person can have at most %(most)s bytes together", most=MOST_ATTRIBUTES)
            )
        return people.check_login(self.user_name)


@dataclass(frozen=True)
class UserRecord:
    """A provisioned person, with id and name of each of their groups; times in epoch milliseconds."""

    id: str
    user_name: str
    external_id: str | None
    active: bool
    attributes: Mapping[str, Any]
    groups: tuple[tuple[str, str], ...]
    created_at: int
    updated_at: int
    version: int


@dataclass(frozen=True)
class GroupFields:
    """What a provider says of a group; `members` are ids of people."""

    display_name: str
    external_id: str | None
    members: frozenset[str]


@dataclass(frozen=True)
class GroupRecord:
    """A provisioned group, with the ids of its members, unless they were not asked for."""

    id: str
    display_name: str
    external_id: str | None
    members: tuple[str, ...]
    created_at: int
    updated_at: int
    version: int


@dataclass(frozen=True)
class Criterion:
    """A condition that people or groups must meet: a field equals a value."""

    field: Field
    value: str | bool


@dataclass(frozen=True)
class Slice:
    """Which of the matches to return: `count` of them, without the first `offset`."""

    offset: int = 0
    count: int = 100


@dataclass(frozen=True)
class Listing(Generic[R]):
    """Some matches, and how many there are."""

    total: int
    items: Sequence[R]
