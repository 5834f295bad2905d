"""`--diff` and `--fix`."""
