"""Makes the plan of a failing run small, and keeps it in a file that can be run again."""
