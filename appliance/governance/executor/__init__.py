"""The governed executor: judges an action, records it and makes the call."""
