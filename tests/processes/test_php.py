"""PHP steps in processes, over HTTP: saved, checked, published, run, journalled and repaired."""

from typing import Any

import httpx

BASE = "/api/v1/processes/php-orders"
TOTAL = """<?php
namespace Shop;

function total(array $lines): float
{
    return array_sum(array_map(fn ($line) => $line['n'] * $line['price'], $lines));
}
"""
STEP = """<?php
require_once __DIR__ . '/../lib/total.php';

return function (array $input, $api) {
    $api->log->info('adding', ['lines' => count($input['lines'])]);
    $total = Shop\\total($input['lines']);
    $order = $api->datapool->create('orders', ['number' => $input['number'], 'total' => $total]);
    $found = $api->datapool->query('orders', ['filter' => ['number' => ['_eq' => $input['number']]]]);
    return ['id' => $order['id'], 'total' => $found['items'][0]['total'], 'at' => $api->now()];
};
"""
FILES = {"steps/save.php": STEP, "lib/total.php": TOTAL}
DEFINITION = {
    "grants": {"datapool": {"orders": ["read", "write"]}},
    "steps": [
        {"id": "save", "code": {"language": "php", "file": "steps/save.php"}},
        {
            "id": "tax",
            "input": "= steps.save",
            "code": {"language": "php", "source": "return fn ($input) => $input['total'] * 1.25;"},
        },
    ],
    "output": "= {order: steps.save.id, gross: steps.tax}",
}
INPUT = {"number": "7", "lines": [{"n": 2, "price": 3.5}, {"n": 1, "price": 5}]}


def data(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["data"]


def save(client: httpx.Client, files: dict[str, str], status: int = 200) -> None:
    data(client.put(BASE, json={"definition": DEFINITION, "files": files}), status)


def make_orders(client: httpx.Client) -> None:
    fields = [{"name": "number", "type": "text"}, {"name": "total", "type": "number"}]
    data(client.post("/api/v1/datapool", json={"name": "orders", "fields": fields}), 201)


def test_a_php_step_is_checked_published_run_and_repaired(acme: httpx.Client) -> None:
    make_orders(acme)
    broken = {**FILES, "lib/total.php": TOTAL.replace("): float", ")) float")}
    save(acme, broken, 201)
    problems = acme.post(f"{BASE}/validate", json={}).json()
    assert '"line": 4' in str(problems).replace("'", '"')
    assert "lib/total.php" in str(problems)
    assert acme.post(f"{BASE}/publish", json={}).status_code == 422

    save(acme, FILES)
    data(acme.post(f"{BASE}/publish", json={}))
    view = data(acme.post(f"{BASE}/execute?wait=20", json=INPUT))
    assert view["status"] == "succeeded", view
    assert view["output"]["gross"] == 15
    here = view["links"]["self"]
    journal = data(acme.get(f"{here}/journal"))
    assert [entry["method"] for entry in journal if entry["method"].startswith("datapool")] == ["datapool.create", "datapool.query"]
    assert {line["message"] for line in data(acme.get(f"{here}/logs"))} >= {"adding"}
    assert data(acme.get(f"/api/v1/datapool/orders/entities/{view['output']['order']}"))["total"] == 12

    failed = data(acme.post(f"{BASE}/execute?wait=20", json={"number": "8", "lines": [{"n": 1}]}))
    assert failed["status"] == "succeeded", "a missing price is a warning in PHP"
    failed = data(acme.post(f"{BASE}/execute?wait=20", json={"number": "9", "lines": ["x"]}))
    result = failed["error"]
    assert (failed["status"], result["step"], result["failure_class"]) == ("failed", "save", "user_code")
    assert result["message"].startswith("TypeError: ")
    assert result["position"]["file"] == "lib/total.php"
    assert result["position"]["line"] == 6


def test_a_php_step_reaches_only_what_is_granted(acme: httpx.Client) -> None:
    source = "return fn ($input, $api) => $api->secrets->get('token');"
    body = {"steps": [{"id": "ask", "code": {"language": "php", "source": source}}]}
    data(acme.put(f"{BASE}-denied", json=body), 201)
    data(acme.post(f"{BASE}-denied/publish", json={}))
    view = data(acme.post(f"{BASE}-denied/execute?wait=20", json={}))
    assert (view["status"], view["error"]["code"], view["error"]["failure_class"]) == ("failed", "policy_denied", "policy")
