"""All rows in memory before the first step."""
