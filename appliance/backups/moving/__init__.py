"""Moves an installation to another database and another store of contents: `gos migrate-to`.

`installation` is the whole move; `origins` opens the source for reading, `file_targets` and `server_targets` are the two kinds
of target, `progress` is their record of what was copied, `rows` copies the tables, `contents` the blobs, `files` the data folder,
and `checksums` compares.
"""

from .installation import Installation, MoveResult, move_installation

__all__ = ["Installation", "MoveResult", "move_installation"]
