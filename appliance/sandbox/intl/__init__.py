"""What `Intl` is in a step: JavaScript that is bundled with its packages when the runtimes are prepared."""
