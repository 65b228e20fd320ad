"""Finding rows by words: a part of the dialect seam.

A searched table has the columns `id` (a serial) and `words`: the words of its text as `fold` makes them, with one space
between.  On SQLite an FTS5 table `<table>_index` over it is kept by `add` and `remove`; on PostgreSQL an index over an
expression follows by itself.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from appliance.core.errors import InvalidRequest
from appliance.core.sentences import Sentence

from . import db

LONGEST_WORD = 60
MOST_WORDS = 10  # of a search
_WORD = re.compile(r"[^\W_]+")
_PLAIN_WORD = re.compile(r"[a-z0-9]+")


def statements(table: str) -> tuple[list[str], list[str]]:
    """The DDL of the index, for SQLite and for PostgreSQL."""
    vectors = _VECTORS.format(table=table)
    options = f"content='{table}', content_rowid='id', tokenize='unicode61 remove_diacritics 0'"
    return (
        [f"CREATE VIRTUAL TABLE {table}_index USING fts5(words, {options})"],
        [f"CREATE INDEX {table}_index ON {table} USING gin ({vectors})"],
    )


# No parser of the server comes between: its words depend on its locale.
_VECTORS = "array_to_tsvector(string_to_array({table}.words, ' '))"


def words_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each word of a text begins and ends, and the word as it is compared."""
    for found in _WORD.finditer(text):
        yield found.start(), found.end(), fold(found[0])


def begin_of(text: str, number: int) -> int:
    """Where the word of this number, from 0, begins."""
    return next(islice(_WORD.finditer(text), number, None)).start()


def fold(word: str) -> str:
    """A word without case and accents, at most 60 characters long; never empty, and without spaces."""
    plain = unicodedata.normalize("NFKD", word).casefold()
    kept = "".join(letter for letter in plain if letter.isalnum())
    return (kept or "".join(letter for letter in word if letter.isalnum()))[:LONGEST_WORD]


def distinct_words(text: str) -> str:
    """What `words` holds of a text in which only the words count, each once."""
    if text.isascii():  # what most machines say, and ten times as fast
        return " ".join(dict.fromkeys(word[:LONGEST_WORD] for word in _PLAIN_WORD.findall(text.lower())))
    return " ".join(dict.fromkeys(word for _, _, word in words_in(text)))


def search_words(search: str, pointer: str = "/search") -> list[str]:
    """The words that are looked for, as they are compared; InvalidRequest when there are none or too many."""
    words = list(dict.fromkeys(word for _, _, word in words_in(search[:2000])))
    if not words or len(words) > MOST_WORDS:
        raise InvalidRequest(
            Sentence("search takes 1 to %(most_words)s words of letters and digits", most_words=MOST_WORDS), pointer=pointer
        )
    return words


def condition(table: str, words: Sequence[str]) -> tuple[str, str]:
    """SQL and its one parameter: the row has, for each of these words, one that begins so.  Only folded words are safe."""
    if db.is_sqlite():
        inside, wanted = matching_ids(table, words)
        return f"{table}.id IN {inside}", wanted
    return f"{_VECTORS.format(table=table)} @@ CAST(? AS tsquery)", _wanted(words)


def matching_ids(table: str, words: Sequence[str], after: int = 0) -> tuple[str, str]:
    """SQL and its one parameter: the ids above `after` of the rows that fulfil `condition`, in brackets."""
    if db.is_sqlite():
        inside = f"SELECT rowid FROM {table}_index WHERE {table}_index MATCH ? AND rowid > {after:d}"  # noqa: S608  ours
    else:
        vectors = _VECTORS.format(table=table)
        inside = f"SELECT id FROM {table} WHERE {vectors} @@ CAST(? AS tsquery) AND id > {after:d}"  # noqa: S608
    return f"({inside})", _wanted(words)


def _wanted(words: Sequence[str]) -> str:
    if any(not word.isalnum() for word in words):
        raise ValueError("a word that was not folded")
    if db.is_sqlite():
        return " ".join(f'"{word}"*' for word in words)
    return " & ".join(f"'{word}':*" for word in words)


def add(table: str, row_id: int) -> None:
    """Inside the write that has given the row its words."""
    add_range(table, row_id, row_id)


def add_range(table: str, first: int, last: int) -> None:
    """Inside the write that has given words to all rows with these ids and to those between."""
    if db.is_sqlite():
        of_them = f"SELECT id, words FROM {table} WHERE id BETWEEN ? AND ?"  # noqa: S608  a table of our own
        db.execute(f"INSERT INTO {table}_index (rowid, words) {of_them}", (first, last))


def remove(table: str, where: str, params: tuple[Any, ...]) -> None:
    """Inside the write that deletes these rows, before it does."""
    if db.is_sqlite():
        db.execute(
            f"INSERT INTO {table}_index ({table}_index, rowid, words) "  # noqa: S608  names of our own
            f"SELECT 'delete', id, words FROM {table} WHERE words IS NOT NULL AND {where}",
            params,
        )
