"""Types of members that recur in requests and answers, each with the description it has in the OpenAPI document."""

from typing import Annotated, Literal

from pydantic import Field

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
