"""A network as one kernel a stage."""
