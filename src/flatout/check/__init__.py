"""`flatout check`: rules over the source of losses, metrics, steps and callbacks."""
