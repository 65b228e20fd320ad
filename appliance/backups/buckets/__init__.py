"""Backups in an S3-compatible bucket: `addresses` are their `s3://` addresses, `folders` the bucket, `objects` reads one."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
