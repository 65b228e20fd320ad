"""Confines a process before it handles untrusted code: drops privileges, file access, system calls and memory."""
