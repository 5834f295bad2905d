"""Tables inside a loss: frames as device columns, joined by key."""
