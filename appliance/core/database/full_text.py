"""Full-text search on SQLite and PostgreSQL.

A searchable table has the columns `id` (a serial) and `words`: the folded words of its text, separated by single spaces.
On SQLite, `add` and `remove` maintain an FTS5 table `<table>_index`; on PostgreSQL, an expression index updates itself.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from appliance.core.errors import InvalidRequest
from appliance.core.sentences import Sentence

from . import db

MAX_WORD_LENGTH = 60
MAX_SEARCH_WORDS = 10  # Maximum number of words in a search.
_WORD = re.compile(r"[^\W_]+")
_PLAIN_WORD = re.compile(r"[a-z0-9]+")


def index_statements(table: str) -> tuple[list[str], list[str]]:
    """The DDL of the index of a table, for SQLite and for PostgreSQL."""
    vectors = _VECTORS.format(table=table)
    options = f"content='{table}', content_rowid='id', tokenize='unicode61 remove_diacritics 0'"
    return (
        [f"CREATE VIRTUAL TABLE {table}_index USING fts5(words, {options})"],
        [f"CREATE INDEX {table}_index ON {table} USING gin ({vectors})"],
    )


# Without PostgreSQL's own text parser, whose words depend on the locale.
_VECTORS = "array_to_tsvector(string_to_array({table}.words, ' '))"


def iterate_words(text: str) -> Iterator[tuple[int, int, str]]:
    """The start, the end and the folded form of each word in a text."""
    for match in _WORD.finditer(text):
        yield match.start(), match.end(), fold(match[0])


def find_word_start(text: str, number: int) -> int:
    """The start of the word with this number, from 0."""
    return next(islice(_WORD.finditer(text), number, None)).start()


def fold(word: str) -> str:
    """Remove case and accents from a word, and cut it to 60 characters; the result is never empty and has no spaces."""
    if word.isascii() and word.isalnum():  # The common case, which is five times as fast.
        return word[:MAX_WORD_LENGTH].lower()
    plain = unicodedata.normalize("NFKD", word).casefold()
    letters = "".join(letter for letter in plain if letter.isalnum())
    return (letters or "".join(letter for letter in word if letter.isalnum()))[:MAX_WORD_LENGTH]


def fold_text(text: str) -> str:
    """The value of `words` for a text, with each word once."""
    if text.isascii():  # The common case, which is ten times as fast.
        return " ".join(dict.fromkeys(word[:MAX_WORD_LENGTH] for word in _PLAIN_WORD.findall(text.lower())))
    return " ".join(dict.fromkeys(word for _, _, word in iterate_words(text)))


def parse_search(search: str, pointer: str = "/search") -> list[str]:
    """The folded words of a search; InvalidRequest when there are none or too many."""
    words = list(dict.fromkeys(word for _, _, word in iterate_words(search[:2000])))
    if not words or len(words) > MAX_SEARCH_WORDS:
        raise InvalidRequest(
            Sentence("search accepts 1 to %(max_words)s words of letters and digits", max_words=MAX_SEARCH_WORDS), pointer=pointer
        )
    return words


def matching_ids(table: str, words: Sequence[str], after: int = 0) -> tuple[str, str]:
    """An SQL subquery with its only parameter: the ids above `after` of all rows that, for each search word, have a
    word that starts with it.  ValueError if a word is not folded."""
    if db.is_sqlite():
        select = f"SELECT rowid FROM {table}_index WHERE {table}_index MATCH ? AND rowid > {after:d}"  # noqa: S608  ours
    else:
        vectors = _VECTORS.format(table=table)
        select = f"SELECT id FROM {table} WHERE {vectors} @@ CAST(? AS tsquery) AND id > {after:d}"  # noqa: S608
    return f"({select})", _search_pattern(words)


def find_ids(table: str, words: Sequence[str], after: int, most: int) -> list[int]:
    """Up to `most` of the ids that `matching_ids` selects."""
    subquery, pattern = matching_ids(table, words, after)
    return [int(number) for (number,) in db.rows(f"SELECT * FROM {subquery} AS matches LIMIT ?", (pattern, most))]  # noqa: S608


def frequent_words(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """An SQL condition with its parameters, for words that many rows have: each row is examined by itself, so a query in some
    order ends early.
    """
    if any(not word.isalnum() for word in words):
        raise ValueError("the words must be folded")
    return " AND ".join(["(' ' || words) LIKE ?"] * len(words)), tuple(f"% {word}%" for word in words)


def _search_pattern(words: Sequence[str]) -> str:
    if any(not word.isalnum() for word in words):
        raise ValueError("the words must be folded")
    if db.is_sqlite():
        return " ".join(f'"{word}"*' for word in words)
    return " & ".join(f"'{word}':*" for word in words)


def add(table: str, row_id: int) -> None:
    """Add a row to the index, in the same write that sets its words."""
    add_range(table, row_id, row_id)


def insert_followed(table: str, sql: str, params: tuple[Any, ...]) -> None:
    """Insert rows with their words into a table whose followers read on from an id; as `db.insert_followed`."""
    if db.is_sqlite():
        ids = [int(row_id) for (row_id,) in db.rows(f"{sql} RETURNING id", params)]
        add_range(table, min(ids), max(ids))
    else:
        db.insert_followed(table, sql, params)


def add_range(table: str, first: int, last: int) -> None:
    """Add all rows with words and ids from `first` to `last` to the index, in the same write that sets their words."""
    if db.is_sqlite():
        select = f"SELECT id, words FROM {table} WHERE words IS NOT NULL AND id BETWEEN ? AND ?"  # noqa: S608  a table of our own
        db.execute(f"INSERT INTO {table}_index (rowid, words) {select}", (first, last))


def remove(table: str, where: str, params: tuple[Any, ...]) -> None:
    """Remove rows from the index, in the same write that deletes them, before they are deleted."""
    if db.is_sqlite():
        db.execute(
            f"INSERT INTO {table}_index ({table}_index, rowid, words) "  # noqa: S608  names of our own
            f"SELECT 'delete', id, words FROM {table} WHERE words IS NOT NULL AND {where}",
            params,
        )
