"""The event loop that serves requests."""

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, which takes a third of the time for a request, on every system that has it; else the standard one."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
