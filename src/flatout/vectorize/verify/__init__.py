"""Value and gradient compared on ordinary and adversarial inputs."""
