"""Both connectors against real servers, with one suite because their contract is the same."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from gos_connector_sql import MysqlConnector, PostgresqlConnector
from gos_connector_sql.connector import SqlConnector

from appliance.connectors.contract import AuthError, ConfigError, ConnectorError, Context, Rejected, SystemFailure, TransientError
from appliance.connectors.testing import Answer, ConnectorContract, LoopbackServer, open_context

TABLES = """
DROP TABLE IF EXISTS {lines};
DROP TABLE IF EXISTS gos_sample;
CREATE TABLE gos_sample (id integer PRIMARY KEY, name varchar(100) NOT NULL);
INSERT INTO gos_sample VALUES (1, 'Ann'), (2, 'Ben'), (3, 'O''Hara');
CREATE TABLE {lines} (order_id integer, line integer, price decimal(18,4), note text, PRIMARY KEY (order_id, line));
"""
QUOTED_TABLE = {"postgresql": '"odd ""lines"', "mysql": '`odd "lines`'}
SLOW = {"postgresql": "SELECT pg_sleep(30)", "mysql": "SELECT SLEEP(30)"}
SERIES = {
    "postgresql": "SELECT n AS id FROM generate_series(1, 5000) AS n",
    "mysql": "SELECT a.seq + 100 * b.seq AS id FROM seq_1_to_100 a JOIN seq_0_to_49 b",
}


class Database:
    """A database server and the connector for it."""

    def __init__(self, connector: type[SqlConnector], server: Any) -> None:
        self.connector, self.server, self.kind = connector, server, connector.name

    def reset(self) -> None:
        self.server.admin(TABLES.format(lines=QUOTED_TABLE[self.kind]))

    def settings(self, **changed: Any) -> dict[str, Any]:
        return {**self.server.settings, **changed}

    def names(self) -> list[str]:
        return str(self.server.admin("SELECT name FROM gos_sample ORDER BY id;")).splitlines()


@pytest.fixture(params=["postgresql", "mysql"])
def database(request: pytest.FixtureRequest) -> Database:
    if request.param == "postgresql":
        instance = Database(PostgresqlConnector, request.getfixturevalue("postgresql"))
    else:
        instance = Database(MysqlConnector, request.getfixturevalue("mariadb"))
    instance.reset()
    return instance


@pytest.fixture
def it(database: Database) -> Iterator[SqlConnector]:
    it = database.connector(database.settings())
    yield it
    it.close()


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context() as ctx:
        yield ctx


class TestPostgresql(ConnectorContract):
    connector = PostgresqlConnector

    @pytest.fixture
    def settings(self, postgresql: Any) -> dict[str, Any]:
        Database(PostgresqlConnector, postgresql).reset()
        return dict(postgresql.settings)

    @pytest.fixture
    def broken_settings(self, postgresql: Any) -> dict[str, Any]:
        return {**postgresql.settings, "port": 1}


class TestMysql(ConnectorContract):
    connector = MysqlConnector

    @pytest.fixture
    def settings(self, mariadb: Any) -> dict[str, Any]:
        Database(MysqlConnector, mariadb).reset()
        return dict(mariadb.settings)

    @pytest.fixture
    def broken_settings(self, mariadb: Any) -> dict[str, Any]:
        return {**mariadb.settings, "port": 1}


# -- reading


def test_values_are_bound_and_never_part_of_the_statement(it: SqlConnector, ctx: Context) -> None:
    for hostile in ("O'Hara", "x' OR '1'='1", "\\' OR 1=1 -- ", "%s %(a)s", ":id", "naïve ☃ 𝄞", 'a"b`c'):
        params = {"sql": "SELECT id FROM gos_sample WHERE name = :name", "params": {"name": hostile}}
        assert it.call("query", params, ctx)["rows"] == ([{"id": 3}] if hostile == "O'Hara" else [])


def test_names_in_literals_and_comments_are_not_placeholders(it: SqlConnector, ctx: Context) -> None:
    sql = "SELECT ':no' AS a, /* :neither */ :yes AS b -- :nor\n, ' '' :x ' AS c"
    assert it.call("query", {"sql": sql, "params": {"yes": "y"}}, ctx)["rows"] == [{"a": ":no", "b": "y", "c": " ' :x "}]


@pytest.mark.parametrize(("sql", "params"), [("SELECT :a", {}), ("SELECT 1", {"b": 1})])
def test_a_placeholder_without_value_and_an_unused_value_are_reported(
    it: SqlConnector, ctx: Context, sql: str, params: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r":a|'b'"):
        it.call("query", {"sql": sql, "params": params}, ctx)


def test_rows_beyond_the_limit_are_not_fetched_and_the_next_call_works(database: Database, it: SqlConnector, ctx: Context) -> None:
    for limit in (1, 500, 777):
        got = it.call("query", {"sql": SERIES[database.kind], "limit": limit}, ctx)
        assert (len(got["rows"]), got["truncated"]) == (limit, True)
    assert len(it.call("query", {"sql": SERIES[database.kind], "limit": 5000}, ctx)["rows"]) == 5000
    assert it.call("query", {"sql": SERIES[database.kind], "limit": 5000}, ctx)["truncated"] is False


@pytest.mark.parametrize(
    "sql", ["DELETE FROM gos_sample", "INSERT INTO gos_sample VALUES (9, 'x')", "COMMIT", "DROP TABLE gos_sample"]
)
def test_a_query_cannot_write(database: Database, it: SqlConnector, ctx: Context, sql: str) -> None:
    with pytest.raises(Rejected):
        it.call("query", {"sql": sql}, ctx)
    assert database.names() == ["Ann", "Ben", "O'Hara"]


def test_a_second_statement_is_refused(database: Database, it: SqlConnector, ctx: Context) -> None:
    for action in ("query", "execute"):
        with pytest.raises(Rejected):
            it.call(action, {"sql": "SELECT 1; DELETE FROM gos_sample"}, ctx)
    assert database.names() == ["Ann", "Ben", "O'Hara"]


def test_values_are_not_rounded(database: Database, it: SqlConnector, ctx: Context) -> None:
    big, moment = ("bigint", "timestamp") if database.kind == "postgresql" else ("signed", "datetime(6)")
    sql = f"SELECT CAST(12345678901234567.8901 AS decimal(30,4)) AS money, CAST(9007199254740993 AS {big}) AS big, "
    sql += f"CAST('2026-03-29 02:30:00.25' AS {moment}) AS moment"
    assert it.call("query", {"sql": sql}, ctx)["rows"] == [
        {"money": "12345678901234567.8901", "big": "9007199254740993", "moment": "2026-03-29T02:30:00.250000"}
    ]


def test_bytes_are_returned_as_base64(database: Database, it: SqlConnector, ctx: Context) -> None:
    sql = "SELECT '\\xff00'::bytea AS b" if database.kind == "postgresql" else "SELECT CAST(x'ff00' AS binary) AS b"
    assert it.call("query", {"sql": sql}, ctx)["rows"] == [{"b": "/wA="}]


# -- writing


def test_rows_are_added_changed_and_deleted_by_key(database: Database, it: SqlConnector, ctx: Context) -> None:
    assert it.call("insert", {"table": "gos_sample", "rows": [{"id": 4, "name": "Dee"}, {"id": 5, "name": "E'e"}]}, ctx) == {
        "affected": 2
    }
    assert it.call("update", {"table": "gos_sample", "where": {"id": 4}, "values": {"name": "Di"}}, ctx) == {"affected": 1}
    assert it.call("delete", {"table": "gos_sample", "where": {"id": 1, "name": "Ann"}}, ctx) == {"affected": 1}
    assert database.names() == ["Ben", "O'Hara", "Di", "E'e"]


def test_an_upsert_is_repeatable(database: Database, it: SqlConnector, ctx: Context) -> None:
    rows = [{"id": 1, "name": "Anna"}, {"id": 8, "name": "New"}]
    for _ in range(2):
        it.call("upsert", {"table": "gos_sample", "key": ["id"], "rows": rows}, ctx)
    assert database.names() == ["Anna", "Ben", "O'Hara", "New"]


def test_insert_adds_all_rows_or_none(database: Database, it: SqlConnector, ctx: Context) -> None:
    with pytest.raises(Rejected) as caught:
        it.call("insert", {"table": "gos_sample", "rows": [{"id": 6, "name": "F"}, {"id": 1, "name": "again"}]}, ctx)
    assert caught.value.outcome == "not_done"
    assert database.names() == ["Ann", "Ben", "O'Hara"]


def test_names_with_special_characters_are_quoted(database: Database, it: SqlConnector, ctx: Context) -> None:
    table = 'odd "lines'
    rows = [
        {"order_id": 1, "line": 1, "price": "10.5000", "note": None},
        {"order_id": 1, "line": 2, "price": 3, "note": '{"a": 1}'},
    ]
    it.call("insert", {"table": table, "rows": rows}, ctx)
    assert it.call("delete", {"table": table, "where": {"order_id": 1, "note": None}}, ctx) == {"affected": 1}
    with pytest.raises(Rejected):
        it.call("insert", {"table": table, "rows": [{"note) VALUES ('x'); --": 1}]}, ctx)
    tables = {each["name"]: each for each in it.call("describe", {}, ctx)["tables"]}
    assert (tables[table]["key"], [column["name"] for column in tables[table]["columns"]]) == (
        ["order_id", "line"],
        ["order_id", "line", "price", "note"],
    )


def test_rows_with_different_columns_are_refused(it: SqlConnector, ctx: Context) -> None:
    with pytest.raises(ConfigError, match="Row 1"):
        it.call("insert", {"table": "gos_sample", "rows": [{"id": 1, "name": "a"}, {"id": 2}]}, ctx)


def test_execute_returns_the_number_of_changed_rows(database: Database, it: SqlConnector, ctx: Context) -> None:
    result = it.call("execute", {"sql": "UPDATE gos_sample SET name = :n WHERE id < :id", "params": {"n": "x", "id": 3}}, ctx)
    assert (result, database.names()) == ({"affected": 2}, ["x", "x", "O'Hara"])


def test_describe_of_one_table_and_of_an_unknown_one(it: SqlConnector, ctx: Context) -> None:
    (table,) = it.call("describe", {"table": "gos_sample"}, ctx)["tables"]
    assert (table["kind"], table["key"]) == ("table", ["id"])
    assert [(column["name"], column["nullable"]) for column in table["columns"]] == [("id", False), ("name", False)]
    with pytest.raises(ConfigError, match="nowhere"):
        it.call("describe", {"table": "nowhere"}, ctx)


# -- failures


def test_a_wrong_password_is_reported_without_revealing_it(database: Database, ctx: Context) -> None:
    wrong = database.connector(database.settings(password="wrong-canary"))
    with pytest.raises(AuthError) as caught:
        wrong.check(ctx)
    assert "canary" not in caught.value.message + str(caught.value.details)


def test_an_unknown_database_is_reported(database: Database, ctx: Context) -> None:
    with pytest.raises((ConfigError, AuthError)) as caught:  # MariaDB does not reveal which databases exist
        database.connector(database.settings(database="nowhere")).check(ctx)
    assert "nowhere" in caught.value.message


def test_an_untrusted_certificate_is_refused(database: Database, ctx: Context) -> None:
    settings = database.settings()
    del settings["ca"]
    with pytest.raises(ConfigError, match="certificate"):
        database.connector(settings).check(ctx)


def test_the_certificate_must_name_the_host(database: Database, ctx: Context) -> None:
    with pytest.raises(ConfigError, match="certificate"):
        database.connector(database.settings(host="localhost")).check(ctx)


def test_clear_text_works_when_tls_is_off(database: Database, ctx: Context) -> None:
    with closing(database.connector(database.settings(tls="off"))) as it:
        assert it.check(ctx)


def test_an_invalid_ca_is_reported(database: Database, ctx: Context) -> None:
    with pytest.raises(ConfigError, match="PEM"):
        database.connector(database.settings(ca="-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----")).check(ctx)


def test_a_slow_query_ends_at_the_deadline_and_later_calls_work(database: Database, it: SqlConnector, ctx: Context) -> None:
    with open_context(seconds=1.0) as hurried, pytest.raises(TransientError) as caught:
        it.call("query", {"sql": SLOW[database.kind]}, hurried)
    assert caught.value.outcome == "not_done"
    assert it.check(ctx)


def test_a_server_of_another_protocol_is_a_failure(database: Database, ctx: Context) -> None:
    server = LoopbackServer()
    try:
        server.answers["/"] = lambda _: Answer()
        with open_context(seconds=0.5) as hurried, pytest.raises((SystemFailure, TransientError)):
            database.connector(database.settings(port=server.port, tls="off")).check(hurried)
    finally:
        server.close()


def test_an_idle_connection_that_died_is_replaced(database: Database, it: SqlConnector, ctx: Context) -> None:
    assert it.check(ctx)
    if database.kind == "postgresql":
        database.server.admin("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gos';")
    else:
        ids = database.server.admin("SELECT id FROM information_schema.processlist WHERE user = 'gos';").split()
        database.server.admin("".join(f"KILL {number};" for number in ids))
    assert it.call("query", {"sql": "SELECT id FROM gos_sample"}, ctx)["rows"]


def test_many_threads_at_once(it: SqlConnector, ctx: Context) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                got = it.call(
                    "query", {"sql": "SELECT :n AS n, name FROM gos_sample WHERE id = 1", "params": {"n": str(number)}}, ctx
                )
                assert got["rows"] == [{"n": str(number), "name": "Ann"}]
        except BaseException as error:  # noqa: BLE001 - asserted below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_commit_without_a_reply_is_unknown(database: Database, ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is cut while COMMIT is sent, so the client cannot know whether it was executed."""
    it = database.connector(database.settings(tls="off"))
    connect: Callable[[Context], Any] = it.connect

    def cutting(ctx: Context) -> Any:
        session = connect(ctx)
        commit = session.commit

        def cut() -> None:
            session._socket.shutdown(2)
            commit()

        session.commit = cut
        return session

    monkeypatch.setattr(it.sessions, "_connect", cutting)
    with pytest.raises(ConnectorError) as caught:
        it.call("insert", {"table": "gos_sample", "rows": [{"id": 9, "name": "x"}]}, ctx)
    assert (type(caught.value), caught.value.outcome) == (TransientError, "unknown")
