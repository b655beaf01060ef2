"""Threads, trio tasks and asyncio tasks that wait, and what wakes them."""
