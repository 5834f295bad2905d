"""Sources that are read batch by batch: generators, datasets, loaders."""
