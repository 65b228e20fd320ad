"""Rehearses the restore of a backup: into a throw-away appliance that is started, asked, and deleted.

`trials` is one rehearsal, in a process of its own; `isolation` makes sure that it does nothing to the outside, `servers` starts and
asks it.  `records` are the rows of rehearsals, `runner` starts those that are due, `status` reports them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
