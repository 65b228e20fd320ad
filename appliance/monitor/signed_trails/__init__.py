"""Signatures of audit trails: the appliance's keys (`keys`), the signed record that ends an export or follows in a stream
(`checkpoints`), and the verification of a file (`verification`)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
