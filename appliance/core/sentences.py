"""Sentences that can be read in another language later, because they keep what they were made of."""

import functools
from collections.abc import Mapping
from typing import Any, Self


class Sentence(str):
    """A sentence in English, made of `id`, in which `%(name)s` stands for each of `values`.

    Programs use it as the `str` that it is; `texts.tell` renders it in another language, whose catalogue knows it by its id.
    A value may be a Sentence itself; of any other its text is kept.  A percent sign in an id with values is written `%%`.
    """

    __slots__ = ("id", "values")

    id: str
    values: Mapping[str, str]

    def __new__(cls, id: str, /, **values: object) -> Self:  # noqa: A002 - the term of catalogues
        kept = {name: value if isinstance(value, Sentence) else f"{value}" for name, value in values.items()}
        self = super().__new__(cls, id % kept if kept else id)
        self.id, self.values = id, kept
        return self

    def __str__(self) -> Self:
        """Itself, so that the text of an exception is still a Sentence."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Sentence, self.id, **self.values), ()
