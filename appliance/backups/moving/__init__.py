"""Moves an installation to another database and another store of contents: `gos migrate-to`.

`installation` is the whole move; `origins` opens the source for reading, `file_targets` and `server_targets` are the two kinds
of target, `progress` is their record of what was copied, `rows` copies the tables, `contents` the blobs, `files` the data folder,
and `checksums` compares.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
