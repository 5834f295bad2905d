"""What `fit` conducts: planning, preparing, loops, ledger, validation."""
