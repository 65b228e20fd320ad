"""Runs processes without side effects: dry runs, replays, samples and test tables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
