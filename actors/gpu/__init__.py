"""GPUs: what the pod has, who holds what, and what goes into a container that was granted some.

Everything here is pure but for the reading of library files, which goes through the port for files:

    facts           the lines of the monitor, the child process that owns NVML
    inventory       the GPUs of the pod
    view            what the facts come to: an inventory, or why there is none
    partition       tickets, grants and holders
    identity_file   gpus.json, which tells a container its GPUs
    elf             the SONAME of a library
    hooks           what of a CDI spec's hooks Greenroom does itself
    links           the private directory of driver libraries
    granted_edits   a CDI spec's edits for exactly the GPUs of a grant, with the nodes of this host
    injection_plan  all of that for one container, and its config.json with it
    restored_edits  the plan with which a restored container has the shape that it had

Source: DESIGN, "Partition", "JSON shapes" and the rules for sandboxes.
"""
