"""The parts of an import: `unpacking` checks a file, `contents` stores contents, `preparation` changes the file so that
only rows are left to be inserted, `filling` inserts them in short writes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
