"""The process: intake, task tree, PID 1 duties and control API."""
