"""The recorded step through Inductor, compiled behind the run."""
