"""What PHP says when something is wrong, in the words and at the places that the step's author knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from appliance.sandbox.outcome import STACK_CHARACTERS, Failure, Position
from appliance.sandbox.php.files import ROOT
from appliance.sandbox.reasons import Reasons

_MESSAGE = re.compile(r"PHP (Fatal error|Parse error|Recoverable fatal error|Compile error|Warning|Notice|Deprecated): +")
_FATAL = ("Fatal error", "Parse error", "Recoverable fatal error", "Compile error")
_PLACE = re.compile(r" in (?P<file>[^\s()]+(?:\(\d+\) : [^:]+ code)?)(?: on line |:)(?P<line>\d{1,9})\s*\Z")
# Code that eval() was given, and what is in it: the file and line of the eval.
_EVALUATED = re.compile(r"(.+?)\((\d+)\) : ")
_MEMORY = re.compile(r"(?:Allowed memory size of \d+ bytes exhausted|Out of memory|Possible integer overflow in memory)")
_UNDEFINED = re.compile(r"Call to undefined (?:function|method) (?:\w+\\)*([\w:]+)\(\)|Class \"(?:\w+\\)*(\w+)\" not found")
# What people expect from PHP on a server, and what they find here instead.
_CALL = "call a foreign system by $api->integrations->execute"
_INSTEAD = {
    **dict.fromkeys(("curl_init", "fsockopen", "stream_socket_client", "SoapClient", "SoapServer", "gethostbyname"), _CALL),
    **dict.fromkeys(
        ("PDO", "PDOException", "mysqli", "mysqli_connect", "SQLite3"),
        "use $api->datapool, or an integration for another database",
    ),
    **dict.fromkeys(("exec", "system", "shell_exec", "passthru", "proc_open", "popen"), "a step has no other programs"),
    **dict.fromkeys(
        (
            *("NumberFormatter", "IntlDateFormatter", "Collator", "Normalizer", "MessageFormatter", "Locale", "Transliterator"),
            *("IntlCalendar", "numfmt_create", "datefmt_create", "collator_create", "normalizer_normalize", "grapheme_strlen"),
            *("idn_to_ascii", "transliterator_transliterate"),
        ),
        "the extension intl is not in PHP steps; format in a TypeScript step, which has Intl, or by hand",
    ),
    **dict.fromkeys(("Phar", "PharData"), "phar is not in PHP steps; ZipArchive reads and writes archives in /tmp"),
    **dict.fromkeys(("Imagick", "ImagickDraw"), "imagick is not in PHP steps; use gd"),
    **dict.fromkeys(("mail",), "send mail by an integration"),
    **dict.fromkeys(("putenv", "session_start"), "a step keeps nothing; what it needs comes as input or from $api->datapool"),
    **dict.fromkeys(("Fiber::start", "Fiber::suspend"), "fibers are not offered in PHP steps; use a generator"),
}
EXITED = (
    "The step ended without returning anything: it called exit() or die(), or a fatal error that error_reporting() hides; "
    "return the output from the function."
)


def strip_root(text: str) -> str:
    """A message with paths relative to the solution, as the author knows them."""
    return text.replace(ROOT, "")


def _fatal(output: str) -> tuple[str, str] | None:
    """The kind and text of the first fatal error among what PHP has said."""
    messages = list(_MESSAGE.finditer(output))
    for number, each in enumerate(messages):
        if each[1] in _FATAL:
            end = messages[number + 1].start() if number + 1 < len(messages) else len(output)
            return each[1], output[each.end() : end].strip()
    return None


def _located(message: str) -> tuple[str, Position | None]:
    """A message without its place, and the place when it is in the author's own files."""
    match = _PLACE.search(message)
    if match is None:
        return strip_root(message), None
    position = _position(match["file"], int(match["line"]))
    return strip_root(message[: match.start()]), position


def _position(file: str, line: int) -> Position | None:
    """A place in the author's own files; of evaluated code the place that evaluates it."""
    if not file.startswith(ROOT):
        return None
    evaluated = _EVALUATED.match(file)
    if evaluated is not None:
        file, line = evaluated[1], int(evaluated[2])
    return Position(file.removeprefix(ROOT), line, 1)


def is_fatal(line: str) -> bool:
    match = _MESSAGE.match(line)
    return match is not None and match[1] in _FATAL


def warning(line: str) -> str:
    """A line of PHP's own error log as a log line."""
    return strip_root(_MESSAGE.sub(lambda match: f"{match[1]}: ", line, count=1))


def ended(output: str, reasons: Reasons) -> Failure:
    """Why a script ended that neither returned nor threw."""
    fatal = _fatal(output)
    if fatal is None:
        if "Out of memory" in output.splitlines():  # what the allocator says where it cannot say more
            return reasons.memory()
        return Failure("user_code", "Exited", EXITED, code="exited")
    if _MEMORY.match(fatal[1]):
        return reasons.memory()
    message, position = _located(fatal[1].split("\nStack trace:")[0])
    name = "ParseError" if fatal[0] == "Parse error" else "FatalError"
    return Failure("user_code", name, message, _stack([("", position)] if position else []), None, position=position)


def refused(output: str) -> Failure | None:
    """What a check of a file's syntax found."""
    fatal = _fatal(output)
    if fatal is None:
        return None
    message, position = _located(fatal[1])
    stack = _stack([("", position)] if position else [])
    return Failure("validation", "SyntaxError", message, stack, "syntax_error", position=position)


def thrown(fault: Mapping[str, Any], reasons: Reasons) -> Failure:
    """What the code threw; everything in it may be forged."""
    name, message = str(fault.get("name", "Error")), strip_root(str(fault.get("message", "")))
    lines = [each for each in map(_line, _listed(fault.get("lines"))) if each is not None]
    stack = _stack(lines)
    if fault.get("cause"):
        stack += f"\ncaused by {strip_root(str(fault['cause']))}"
    return reasons.passed_on(fault, (name, message + _hint(message)), stack, lines[0][1] if lines else None)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _line(value: Any) -> tuple[str, Position] | None:
    match value:
        case [str() as function, str() as file, int() as line]:
            position = _position(file, line)
            return None if position is None else (function, position)
    return None


def _stack(lines: list[tuple[str, Position]]) -> str:
    out = []
    for function, position in lines:
        where = f"{position.file}:{position.line}"
        out.append(f"    at {strip_root(function)} ({where})" if function else f"    at {where}")
    return "\n".join(out)[:STACK_CHARACTERS]


def _hint(message: str) -> str:
    match = _UNDEFINED.match(message)
    instead = _INSTEAD.get(match[1] or match[2]) if match else None
    return f": {instead}" if instead else ""
