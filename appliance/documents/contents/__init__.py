"""What is known about contents: media type, text, previews, malware scan, and API keys."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
