"""The reader of users' Python."""
