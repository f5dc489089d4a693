"""The real ports: the only place that calls the operating system."""
