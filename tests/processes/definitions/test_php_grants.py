"""What the literals of PHP code ask for beyond its grants."""

import pytest

from appliance.processes.definitions.nodes import Grants
from appliance.processes.definitions.php_grants import find_missing_grants
from appliance.processes.definitions.type_checking import Checkable, type_problems
from appliance.sandbox import Pool
from tests.processes.definitions.test_typings import AROUND, define

ACTIONS = {"erp": frozenset({"push"}), "crm": frozenset({"*"})}
GRANTS = Grants(ACTIONS, {"orders": frozenset({"read"})}, secrets=frozenset({"token"}), documents=frozenset({"read"}))


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("$api->integrations->execute('erp', 'push', [])", None),
        ('$api->integrations->execute("crm", "anything")', None),
        ("$api->integrations->execute('erp', 'pull', [])", ("integrations", "erp", "pull")),
        ("$api->integrations->execute('hr', $action)", ("integrations", "hr", "")),
        ("$api->integrations->execute($slug, 'pull')", None),
        ("$api->integrations->execute('er' . 'p', 'pull')", None),
        ('$api->integrations->execute("$slug", "pull")', None),
        ("$api\n  ->datapool\n  ->query('orders')", None),
        ("$api->datapool->create('orders', [])", ("datapool", "orders", "write")),
        ("$api->secrets->get('other')", ("secrets", "other", "")),
        ("$api->secrets->get('token')", None),
        ("$api->processes->execute('sub', [])", ("processes", "sub", "")),
        ("$api->human->request(['kind' => 'approval'])", ("human", "", "")),
        ("$api->documents->read($id)", None),
        ("$api->documents->create(['name' => 'a'])", ("documents", "", "write")),
        ("// $api->secrets->get('other')", None),
        ("/* $api->secrets->get('other') */ # $api->secrets->get('other')", None),
        ("'it''s // no comment'; $api->secrets->get('other')", ("secrets", "other", "")),
        ("$other->things->get('other')", None),
    ],
)
def test_a_literal_beyond_the_grants_is_found(call: str, missing: tuple[str, str, str] | None) -> None:
    results = [each for _, _, each in find_missing_grants(f"<?php return function ($input, $api) {{\n{call};\n}};", GRANTS)]
    assert results == ([missing] if missing else [])


def test_php_is_warned_of_with_its_place(sandbox: Pool) -> None:
    source = "<?php\nreturn function (array $input, $api) {\n  return $api->secrets->get('other');\n};"
    definition = define({"id": "a", "code": {"language": "php", "source": source}})
    (problem,) = type_problems(sandbox, "acme", Checkable(definition, {}, AROUND))
    assert (problem.code, problem.severity, problem.pointer) == ("grant_missing", "warning", "/steps/0/code")
    assert (problem.file, problem.line, problem.column) == ("steps/a.php", 3, 16)
    assert problem.message == "no grant for other: add grants: secrets: [other]"
