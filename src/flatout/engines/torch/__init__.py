"""The step, captured once and replayed."""
