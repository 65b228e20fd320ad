"""Every column that can name a person is in the register, or is listed as one that names nobody."""

import re
from dataclasses import fields

import pytest

from appliance.core.config import Config
from appliance.personal_data import KINDS, NOT_PERSONAL, Erasure, Table
from tests.personal_data.filling import is_secret, list_columns, list_tables
from tests.personal_data.page import PAGE, make_page

NAMING = re.compile(
    r"(^|_)(actor|address|agent|approvers|asked|audience|author|by|caller|email|ips|issuer|login|logins|mail|members|owner_id"
    r"|people|person|recipients|requester|reviewers|subject|told_to|user|users|visitor|voter|who)(_id|_name|_login)?$"
)
TABLES = [table for kind in KINDS for table in kind.tables]


def columns_of(table: Table) -> set[str]:
    return {*table.names, *table.details, *table.cleared, *table.copies}


def test_every_column_that_can_name_a_person_is_registered(empty: None) -> None:
    registered = {f"{table.name}.{column}" for table in TABLES for column in columns_of(table)}
    names = {f"{table}.{column.name}" for table in list_tables() for column in list_columns(table) if NAMING.search(column.name)}
    assert len(names) > 80
    assert sorted(names - registered - NOT_PERSONAL.keys()) == []
    assert sorted(NOT_PERSONAL.keys() - names) == [], "there is no such column, or its name needs no explanation"
    assert sorted(NOT_PERSONAL.keys() & registered) == []


@pytest.mark.parametrize("column", ["login", "user_id", "created_by", "actor", "email", "issuer", "told_to", "granted_login"])
def test_names_of_such_columns_are_recognized(column: str) -> None:
    assert NAMING.search(column)


def test_every_registered_column_exists_and_is_no_secret(empty: None) -> None:
    for table in TABLES:
        columns = {each.name: each.kind for each in list_columns(table.name)}
        assert columns_of(table) | set(table.exported) <= columns.keys(), table.name
        secrets = [name for name in table.exported if is_secret(name) or columns[name] in ("blob", "bytea")]
        assert secrets == [], table.name
        assert set(table.copies.values()) <= table.names.keys(), table.name
        assert ("tenant_id" in columns) == table.has_tenant, table.name
        assert not table.paged_by or table.paged_by in table.details, table.name


def test_each_kind_says_what_stays_and_why_and_how_long() -> None:
    assert len({kind.id for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        assert bool(kind.reason) == (kind.erasure is not Erasure.DELETE), kind.id
        assert kind.period or kind.setting, kind.id
        if kind.setting:
            section, _, name = kind.setting.partition(".")
            assert name in {each.name for each in fields(getattr(Config(), section))}, kind.id


def test_the_page_lists_every_kind() -> None:
    assert PAGE.read_text("utf-8") == make_page(), "run `.venv/bin/python -m tests.personal_data.page` and commit the page"
