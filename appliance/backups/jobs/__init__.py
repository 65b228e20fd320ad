"""Jobs on a whole tenant as rows: any process shows them, and continues those of a process that is gone.

`records` has the rows, `runner` runs them, `files` stores their files, `exports` and `uploads` start them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
