"""Errors of reading and writing content: a code, a failure class (docs/contract.md § 5) and a message that says what to do next."""

from typing import Literal

FailureClass = Literal["validation", "timeout", "memory", "system"]


class FormatFailed(Exception):
    """An operation failed; `message` may be shown to a user."""

    def __init__(self, code: str, failure_class: FailureClass, message: str) -> None:
        super().__init__(message)
        self.code, self.failure_class, self.message = code, failure_class, message


class ContentInvalid(FormatFailed):
    """The content does not have the declared format, or is not acceptable."""

    def __init__(self, message: str, code: str = "content_invalid") -> None:
        super().__init__(code, "validation", message)


class ContentEncrypted(ContentInvalid):
    """The content is protected by a password."""

    def __init__(self, what: str) -> None:
        message = f"{what} is encrypted and opens only with a password; save a copy without a password and use that"
        super().__init__(message, "content_encrypted")


class ContentTooLarge(FormatFailed):
    """The content, or the result, exceeds a size limit."""

    def __init__(self, message: str) -> None:
        super().__init__("content_too_large", "validation", message)


class Cancelled(Exception):
    """The caller cancelled the operation."""
