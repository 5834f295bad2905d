"""Memory that a GPU reads and writes: pinned, locked, fetched, and the sinks that rows go to."""
