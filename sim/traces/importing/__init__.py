"""From the traces of others, and our own journals, to a trace of ours."""
