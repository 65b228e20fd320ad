"""JSON and NDJSON: strict, bounded in depth, numbers that stay what they are."""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from . import encodings
from .failing import ContentInvalid
from .request import Records, Request
from .rows import exact

MOST_DEPTH = 100
MOST_LINE = 16 << 20


def load() -> None:
    encodings.load()


def parse(request: Request) -> dict[str, Any]:
    """One record, the document; with `each`, a record for every item of the list that the document is, or has there."""
    text, encoding = encodings.open_text(request.content, request.options.get("encoding"))
    try:
        value = read_json(text.read(), "the content")
    except UnicodeError as error:
        raise encodings.not_decodable(error, encoding) from error
    records = Records(request.output)
    if not request.option("each", False):
        records.add(value)
    elif isinstance(value, list):
        for item in value:
            records.add(item)
    else:
        raise ContentInvalid("rows are asked for, and the JSON document is no list")
    return {"encoding": encoding, "count": records.count}


def parse_lines(request: Request) -> dict[str, Any]:
    """A record per line that is not blank."""
    text, encoding = encodings.open_text(request.content, request.options.get("encoding"))
    records = Records(request.output)
    try:
        for number, line in enumerate(_bounded_lines(text.readline), 1):
            if line.strip():
                records.add(read_json(line, f"line {number}"))
    except UnicodeError as error:
        raise encodings.not_decodable(error, encoding) from error
    return {"encoding": encoding, "count": records.count}


def _bounded_lines(readline: Callable[[int], str]) -> Iterator[str]:
    while line := readline(MOST_LINE):
        if len(line) >= MOST_LINE:
            raise ContentInvalid(f"a line has more than {MOST_LINE >> 20} million characters; is this NDJSON?")
        yield line


def write(request: Request) -> dict[str, Any]:
    """The rows as one indented JSON list, or the single value of `whole`."""
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
    """The rows as NDJSON."""
    records = Records(request.output)
    for line in request.content:
        records.add(json.loads(line))
    return {"count": records.count}


def read_json(text: str, where: str) -> Any:
    """JSON that may be kept: no NaN, no member twice, no lone surrogate, no NUL; large integers as text."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
        if "\\u" in text:
            _refuse_unstorable(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        raise ContentInvalid(f"{where} is nested too deep") from None
    except (json.JSONDecodeError, _Refused) as error:
        raise ContentInvalid(f"{where} is no JSON: {str(error)[:200]}") from error
    if _is_deeper(value, MOST_DEPTH):
        raise ContentInvalid(f"{where} is nested more than {MOST_DEPTH} deep")
    return value


class _Refused(ValueError):
    """Accepted by the reader of the standard library, not by us."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Refused("a member appears twice")
    return members


def _refuse(name: str) -> Any:
    raise _Refused(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(found := float(text)):
        raise _Refused(f"{text[:40]} is too large a number")
    return found


def _integer(text: str) -> int | str:
    return exact(int(text)) if len(text) < 4000 else text


def _refuse_unstorable(text: str) -> None:
    if "\\u0000" in text:
        raise _Refused("it holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Refused("it holds half of a surrogate pair") from None


def _is_deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return False
    return True


def _inner(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict | list)]
