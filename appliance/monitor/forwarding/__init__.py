"""Audit trails on their way to other systems: what is sent (`records`), how far each destination is (`forwarding`), and the syslog
server (`syslog`).  The collector of OTLP is in `monitor.otlp`, which loads its library only when one is configured."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
