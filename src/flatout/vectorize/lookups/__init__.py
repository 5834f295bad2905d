"""Tables that are read element by element, as gathers."""
