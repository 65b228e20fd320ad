"""Types of members that recur in requests and answers, each with the description it has in the OpenAPI document."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag

TEXT, OBJECT = "<text>", "<object>"
"""Tags of what a member with TEXT_OR_OBJECT may be; pydantic has them in the places of errors, our pointers leave them out."""


def _kind_of(value: Any) -> str:
    return OBJECT if isinstance(value, dict | BaseModel) else TEXT


AS_TEXT, AS_OBJECT, TEXT_OR_OBJECT = Tag(TEXT), Tag(OBJECT), Discriminator(_kind_of)
"""Of a union of a text and an object: only the problems of the one that was sent are reported."""

Limit = Annotated[int, Field(description="Items per page, 1 to 500; 50 by default.")]
Cursor = Annotated[
    str | None, Field(description="Where the page begins: `meta.next_cursor` of the previous page; left out for the first one.")
]
Sort = Annotated[
    str | None,
    Field(
        description="Fields to order by, separated by commas, each with a leading `-` for descending order, such as "
        "`-created_at,name`. An unknown field is refused with the list of those that are known."
    ),
]
ExactCount = Annotated[
    Literal["exact"] | None,
    Field(description="`exact` returns the number of all matches as `meta.total`; without it they are not counted."),
]
CreatedAt = Annotated[str, Field(description="Time of creation, RFC 3339 in UTC with milliseconds.")]
CreatedBy = Annotated[str, Field(description="Who created this: `user:…` for a person, `key:…` for an API key, or `system`.")]
UpdatedAt = Annotated[str, Field(description="Time of the last change, RFC 3339 in UTC with milliseconds.")]
