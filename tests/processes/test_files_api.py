"""A scan and a table, from their upload over HTTP through a process in YAML to rows, a workbook and a PDF."""

import io
import re

import httpx
import pypdfium2

from tests.formats.test_recognition import saved, scan

from .rehearsal.replaying import replay
from .test_api import BASE, data
from .test_files import CSV, store
from .world import World, rule, wait_until

DOCUMENTS = "/api/v1/documents"
PROCESS = """
id: paper-work
input: {type: object, required: [table, scan]}
steps:
  - {id: seen, ocr: {document: = input.scan, languages: [en]}}
  - {id: total, rule: {expression: "= /EUR\\\\s*([0-9.]+)/.exec(steps.seen.text)[1]"}}
  - {id: read, file: {operation: parse, document: = input.table, format: csv, types: {number: integer}}}
  - id: letter
    file:
      operation: convert
      format: pdf
      name: letter.pdf
      folder: out
      content: |
        # Total {{ steps.total }}

        | number | customer |
        |---|---|
        | {{ steps.read.rows[0].number }} | {{ steps.read.rows[0].customer }} |
  - {id: book, file: {operation: write, format: xlsx, data: = steps.read.rows, name: rows.xlsx}}
"""


def upload(acme: httpx.Client, name: str, content: bytes) -> str:
    return str(data(acme.post(DOCUMENTS, params={"name": name}, content=content), 201)["id"])


def test_documents_are_processed_end_to_end(acme: httpx.Client) -> None:
    address = f"{BASE}/paper-work"
    assert acme.put(address, content=PROCESS, headers={"Content-Type": "application/yaml"}).status_code == 201
    data(acme.post(f"{address}/publish", json={}))
    input_data = {"table": upload(acme, "orders.csv", CSV.encode()), "scan": upload(acme, "invoice.png", saved(scan(), "PNG"))}
    view = data(acme.post(f"{address}/execute", json=input_data), 202)
    execution = view["links"]["self"]
    wait_until(lambda: data(acme.get(execution))["status"] in ("succeeded", "failed"), 180)
    final_view = data(acme.get(execution))
    assert final_view["status"] == "succeeded", final_view
    assert (final_view["output"]["document"]["name"], final_view["output"]["count"]) == ("rows.xlsx", 2)
    steps = {each["step"]: each for each in data(acme.get(f"{execution}/steps"))}
    assert steps["total"]["output"] == "342.00"
    assert re.search(r"2026-0815", steps["seen"]["output"]["text"])
    letter = steps["letter"]["output"]["document"]
    pages = pypdfium2.PdfDocument(acme.get(f"{DOCUMENTS}/{letter['id']}/content").content)
    text = pages[0].get_textpage().get_text_bounded()
    assert "Total 342.00" in text
    assert "Müller" in text
    assert acme.get(f"{DOCUMENTS}/{final_view['output']['document']['id']}/content").content[:2] == io.BytesIO(b"PK").read()


def test_a_replay_takes_files_as_they_were(world: World) -> None:
    steps = [
        {"id": "read", "file": {"operation": "parse", "document": "= input.d"}},
        rule("count", "= steps.read.rows.length"),
        {"id": "made", "file": {"operation": "write", "format": "json", "data": "= steps.count", "name": "count.json"}},
    ]
    result = world.run(steps, {"d": store(world, "orders.csv", CSV)})
    assert result.status == "succeeded", result.error
    replayed = replay(world, result)
    assert [step.result for step in replayed.steps] == ["identical"] * 3
