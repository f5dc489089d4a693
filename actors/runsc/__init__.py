"""The runsc driver: gVisor's command line, spoken by the rules of DESIGN, "Sandboxes".

`flags` and `argv` say what is called; `answers`, `log` and `errors` what was answered; `driver` calls; `record`, `ids`
and `gofers` know what belongs to one activation; `activation` starts or restores a whole sandbox, `sandbox` is one that
lives, `teardown` ends one.

What is said of runsc here was measured on runsc 20240729 unless another source is named.
"""
