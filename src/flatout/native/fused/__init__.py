"""A network as one persistent kernel."""
