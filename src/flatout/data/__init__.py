"""From what the user gave to rows on the device."""
