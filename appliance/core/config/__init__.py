"""The configuration: `sections` declares every setting, `loading` reads file and environment, `checks` refuses values that
cannot work, `example` writes the documented example, and `view` lists the values in effect."""

from .loading import Config, Domains, environment, environment_names, load_config, setting_names

__all__ = ["Config", "Domains", "environment", "environment_names", "load_config", "setting_names"]
