"""How a diagnosis is shown: in a terminal, as a page, as a trace."""
