"""The source of the user's functions, in simpler spellings."""
