"""One tenant or one document out of the backup of a whole appliance, and what a backup contains.

`reading` opens a backup without restoring it, `tenants` and `documents` take something out, `overview` lists what there is.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
