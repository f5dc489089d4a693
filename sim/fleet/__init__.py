"""A fleet of workers: what it is configured with, who goes where, and when. It decides; engines perform."""
