"""What an operator sees of a drain or a pool: log lines, metrics, and what a service manager is told."""
