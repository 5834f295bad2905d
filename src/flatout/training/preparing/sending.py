"""What sends chunks to an engine's device, and the host memory that they are put together in."""

from __future__ import annotations

from flatout.data.stream.chunk_memory import FreshMemory, Memory, Ring
from flatout.data.stream.sender import CHUNKS_ON_HOST, Sender
from flatout.engines.contract import Engine


def sender_to(engine: Engine) -> Sender:
    return Sender(engine.send, engine.reuses_memory, engine.landing)


def chunk_memory_of(engine: Engine) -> Memory:
    return Ring(CHUNKS_ON_HOST) if engine.reuses_memory else FreshMemory()
