"""OCI bundles: the config.json of each container of a sandbox, decided by pure functions and written through Files.

A bundle that Greenroom was given is only read; the config.json that runsc sees is always one of ours, with an absolute
root.path, below `sandboxes/<activation>/bundles/<container>/`.

Source: OCI runtime specification 1.0.2, config.md and config-linux.md.
"""
