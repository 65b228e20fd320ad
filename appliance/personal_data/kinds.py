"""The shape of the register: a kind of personal data, its tables, and what becomes of it when a person is erased."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Erasure(StrEnum):
    """What the erasure of a person does to a kind."""

    DELETE = "delete"
    PSEUDONYMISE = "pseudonymise"  # the row stays under the id; logins in it are replaced
    KEEP = "keep"


class Form(StrEnum):
    """How a column names a person."""

    ID = "id"  # `usr_…`, or `user:usr_…` as an actor
    LOGIN = "login"  # a login or an e-mail address, of somebody who may have no account
    LISTED = "listed"  # JSON, of which one string is the login, or `user:<login>`
    KEY = "key"  # the id of an API key that the person issued


@dataclass(frozen=True)
class Table:
    """The rows of a table that name a person in one of the columns of `names`.

    `details` are the other columns that an export contains: never one with a secret, a digest or a seal.  `copies` are logins at
    the time, each with the column of its id; an erasure replaces them.  It empties the texts of `cleared`.  `paged_by` is a
    column that identifies a row within a tenant, by which a large table is read in parts.  `with_account`: its rows go when the
    account is deleted.
    """

    name: str
    names: Mapping[str, Form]
    details: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    paged_by: str = ""
    has_tenant: bool = True
    with_account: bool = False

    @property
    def exported(self) -> tuple[str, ...]:
        """The columns of an export, in their order."""
        tenant = ("tenant_id",) if self.has_tenant else ()
        return tuple(dict.fromkeys((*tenant, *self.details, *self.names, *self.copies)))


@dataclass(frozen=True)
class Kind:
    """A kind of personal data.  `reason` says why it is not deleted; `period` how long it lasts, unless `setting` says it in days.

    `is_of_visitors`: it also concerns people without an account, and their tenant may export and erase it.
    """

    id: str
    title: str
    erasure: Erasure
    tables: tuple[Table, ...]
    reason: str = ""
    period: str = ""
    setting: str = ""
    is_exported: bool = True
    is_of_visitors: bool = False
