"""Many independent models at once: seeds, folds, rates and architectures over one data set."""
