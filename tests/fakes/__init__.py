"""Small stand-ins for the ports and for what performs the steps."""
