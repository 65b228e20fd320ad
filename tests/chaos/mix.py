"""What the executions of an experiment do: every way in which work waits, and a document each, in the bucket if there is one."""

from typing import Any


def _mark(step: str, what: str) -> dict[str, Any]:
    """A step that leaves one mark of its run."""
    return {"id": step, "datapool": {"collection": "marks", "create": {"values": {"run": "= input.run", "what": what}}}}


PROCESS = {
    "id": "mix",
    "grants": {"datapool": {"marks": ["read", "write"]}, "documents": ["read", "write"]},
    "steps": [
        {
            "id": "code",
            "code": {
                "language": "typescript",
                "source": """
export default async function (input: {run: string}, api: any) {
  await api.datapool.create("marks", {run: input.run, what: "code"});
  const document = await api.documents.create({name: input.run + ".txt", content: "content of " + input.run});
  return {document: document.id};
}""",
            },
        },
        _mark("write", "write"),
        {"id": "pause", "wait": {"for": "200ms"}},
        {"id": "child", "process": {"use": "mix-child", "input": {"run": "= input.run"}}},
        {
            "id": "each",
            "for_each": {
                "items": [1, 2, 3],
                "as": "n",
                "concurrency": 2,
                "steps": [_mark("mark", "item {{ n }}")],
            },
        },
        {
            "id": "read",
            "input": {"run": "= input.run", "document": "= steps.code.document"},
            "code": {
                "language": "javascript",
                "source": """
export default async function (input, api) {
  const document = await api.documents.read(input.document, {encoding: "text"});
  if (document.content !== "content of " + input.run) throw new Error("another content: " + document.content);
  await api.datapool.create("marks", {run: input.run, what: "read"});
}""",
            },
        },
    ],
}
CHILD = {
    "id": "mix-child",
    "steps": [_mark("mark", "child"), {"id": "pause", "wait": {"for": "50ms"}}],
}
MARKS_PER_RUN = 7  # code, write, the child's, three items, read
