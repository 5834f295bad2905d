"""The model's own step, many times in one dispatch: one engine a backend."""
