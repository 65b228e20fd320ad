"""A process that prompts a model over HTTP, from its YAML to its result: without and with the profile, and its cost."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.llm.provider import Provider, Say
from tests.processes.test_api import BASE, data, error
from tests.processes.world import wait_until

PROFILES = "/api/v1/llm-profiles"
YAML = {"Content-Type": "application/yaml"}
SORT = """
id: llm-sort
input: {type: object, required: [text]}
grants: {llm: [sorter]}
steps:
  - id: classify
    retry: {max_attempts: 2, initial: 1ms, classes: [connector]}
    llm:
      profile: sorter
      prompt: "What is this about? {{ input.text }}"
      output: {type: object, required: [topic], properties: {topic: {enum: [order, complaint]}}}
  - id: reply
    code:
      language: typescript
      source: |
        export default async function (input: StepInput<"reply">, api: Api<"reply">) {
          const text: string = await api.llm.generate({profile: "sorter", prompt: "Answer: " + input.topic});
          return {topic: input.topic, text};
        }
    input: = steps.classify
"""


@pytest.fixture
def provider() -> Iterator[Provider]:
    created = Provider()
    yield created
    created.close()


@pytest.fixture
def sort(acme: httpx.Client) -> Iterator[str]:
    assert acme.put(f"{BASE}/llm-sort", content=SORT, headers=YAML).status_code in (200, 201)
    data(acme.post(f"{BASE}/llm-sort/publish", json={}))
    yield f"{BASE}/llm-sort"
    acme.delete(f"{PROFILES}/sorter")


def profile(provider: Provider, **more: Any) -> dict[str, Any]:
    redaction = {"patterns": [{"use": "email"}]}
    price = {"currency": "EUR", "input": 1, "output": 5}
    payload = {"slug": "sorter", "kind": "openai", "model": "small", "base_url": provider.url, "api_key": "sk-canary-55"}
    return {**payload, "redaction": redaction, "price": price, **more}


def test_a_process_waits_for_its_profile_asks_and_shows_what_it_asked(acme: httpx.Client, sort: str, provider: Provider) -> None:
    provider.say(Say(status=429), {"topic": "weather"}, {"topic": "order"}, "We are on it.")
    view = data(acme.post(f"{sort}/execute", json={"text": "Where is it? ann@example.com"}), 202)
    address = view["links"]["self"]
    waiting = wait_until(lambda: result if (result := data(acme.get(address)))["status"] == "waiting" else None)
    assert (waiting["wait_reason"], waiting["waiting_for"]["waits"][0]["profile"]) == ("input", "sorter")
    data(acme.post(PROFILES, json=profile(provider)), 201)
    over = ("succeeded", "failed")
    done = wait_until(lambda: result if (result := data(acme.get(address)))["status"] in over else None)
    assert (done["status"], done["output"]) == ("succeeded", {"topic": "order", "text": "We are on it."}), done
    lines = data(acme.get(f"{address}/journal"))
    requests = [line for line in lines if line["method"] == "llm.generate"]
    exchanges = [len(line["answer"]["exchanges"]) for line in requests]
    assert exchanges == [1, 2, 1]
    text = acme.get(f"{address}/journal").text
    assert "[EMAIL_1]" in text
    assert not [secret for secret in ("ann@example.com", "sk-canary", "sealed") if secret in text]
    used = data(acme.get(f"{PROFILES}/sorter/usage"))
    assert used["day"] == {"calls": 3, "input_tokens": 300, "output_tokens": 60, "cost": 0.0006}


def test_a_budget_stops_an_execution_with_what_to_do(acme: httpx.Client, sort: str, provider: Provider) -> None:
    provider.say({"topic": "order"})
    data(acme.post(PROFILES, json=profile(provider, budgets={"execution": {"cost": 0.0001}})), 201)
    done = data(acme.post(f"{sort}/execute?wait=20", json={"text": "?"}))
    assert (done["status"], done["error"]["code"], done["error"]["failure_class"]) == ("failed", "budget_exceeded", "policy")
    assert (done["error"]["step"], len(provider.requests)) == ("reply", 1)
    assert "0.0002 of 0.0001 EUR" in done["error"]["message"]


def test_code_is_held_to_its_grants_when_it_is_published(acme: httpx.Client, sort: str) -> None:
    text = SORT.replace("llm-sort", "llm-other").replace("[sorter]", "[]")
    assert acme.put(f"{BASE}/llm-other", content=text, headers=YAML).status_code in (200, 201)
    refusal = error(acme.post(f"{BASE}/llm-other/publish", json={}), 422)
    assert (refusal["code"], refusal["details"][0]["pointer"]) == ("definition_invalid", "/steps/1/code")
