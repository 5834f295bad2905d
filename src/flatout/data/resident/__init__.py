"""All rows on the device."""
