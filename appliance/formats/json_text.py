"""JSON and NDJSON: strict parsing with a depth limit and exact integers."""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from . import encodings
from .errors import ContentInvalid
from .request import Records, Request
from .rows import to_exact_json

MAX_DEPTH = 100
MAX_LINE_LENGTH = 16 << 20


def load() -> None:
    encodings.load()


def parse(request: Request) -> dict[str, Any]:
    """Write the document as one record; with `each`, one record for every item of the document, which must be a list."""
    text, encoding = encodings.open_text(request.content, request.options.get("encoding"))
    try:
        value = parse_json(text.read(), "the content")
    except UnicodeError as error:
        raise encodings.decoding_error(error, encoding) from error
    records = Records(request.output)
    if not request.option("each", False):
        records.add(value)
    elif isinstance(value, list):
        for item in value:
            records.add(item)
    else:
        raise ContentInvalid("the JSON document must be a list to be read as rows")
    return {"encoding": encoding, "count": records.count}


def parse_lines(request: Request) -> dict[str, Any]:
    """Write one record per line that is not blank."""
    text, encoding = encodings.open_text(request.content, request.options.get("encoding"))
    records = Records(request.output)
    try:
        for number, line in enumerate(_iterate_lines(text.readline), 1):
            if line.strip():
                records.add(parse_json(line, f"line {number}"))
    except UnicodeError as error:
        raise encodings.decoding_error(error, encoding) from error
    return {"encoding": encoding, "count": records.count}


def _iterate_lines(readline: Callable[[int], str]) -> Iterator[str]:
    while line := readline(MAX_LINE_LENGTH):
        if len(line) >= MAX_LINE_LENGTH:
            raise ContentInvalid(f"a line has more than {MAX_LINE_LENGTH >> 20} million characters; is this NDJSON?")
        yield line


def write(request: Request) -> dict[str, Any]:
    """Write the rows as an indented JSON list, or with `whole` the single value."""
    indent = request.option("indent", 2) or None
    count = 0
    if request.option("whole", False):
        value = json.loads(request.content.read())
        request.output.write(json.dumps(value, indent=indent, ensure_ascii=False).encode() + b"\n")
        return {"count": 1}
    request.output.write(b"[")
    for line in request.content:
        text = json.dumps(json.loads(line), indent=indent, ensure_ascii=False)
        request.output.write(b",\n" if count else b"\n")
        request.output.write(text.encode())
        count += 1
    request.output.write(b"\n]\n" if count else b"]\n")
    return {"count": count}


def write_lines(request: Request) -> dict[str, Any]:
    """Write the rows as NDJSON."""
    records = Records(request.output)
    for line in request.content:
        records.add(json.loads(line))
    return {"count": records.count}


def parse_json(text: str, where: str) -> Any:
    """Parse JSON that can be stored: without NaN, duplicate members, unpaired surrogates and NUL; large integers as text."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_reject_duplicates,
            parse_constant=_reject_constant,
            parse_float=_parse_float,
            parse_int=_parse_integer,
        )
        if "\\u" in text:
            _check_storable(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        raise ContentInvalid(f"{where} is nested too deeply") from None
    except (json.JSONDecodeError, _InvalidJson) as error:
        raise ContentInvalid(f"{where} is not valid JSON: {str(error)[:200]}") from error
    if _is_deeper_than(value, MAX_DEPTH):
        raise ContentInvalid(f"{where} is nested more than {MAX_DEPTH} levels deep")
    return value


class _InvalidJson(ValueError):
    """JSON that the standard library accepts and this parser rejects."""


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _InvalidJson("a member appears twice")
    return members


def _reject_constant(name: str) -> Any:
    raise _InvalidJson(f"{name} is not a JSON number")


def _parse_float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise _InvalidJson(f"the number {text[:40]} is too large")
    return number


def _parse_integer(text: str) -> int | str:
    return to_exact_json(int(text)) if len(text) < 4000 else text


def _check_storable(text: str) -> None:
    if "\\u0000" in text:
        raise _InvalidJson("it contains a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _InvalidJson("it contains an unpaired surrogate") from None


def _is_deeper_than(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [inner for each in level for inner in _nested_values(each)]
        if not level:
            return False
    return True


def _nested_values(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict | list)]
