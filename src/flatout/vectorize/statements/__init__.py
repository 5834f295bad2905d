"""Statements in plainer spellings, before they are interpreted."""
