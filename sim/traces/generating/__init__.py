"""Workloads that are made up: each a frozen class with its parameters, and a seed makes its records."""
