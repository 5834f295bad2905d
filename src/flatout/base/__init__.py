"""What every room stands on: errors, options, reports, the disk cache."""
