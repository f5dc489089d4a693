"""GPUs: what the pod has, who holds what, and what goes into a container that was granted some.

Everything here is pure but for what makes a spec and what reads files, which go through the ports:

    facts           the lines of the monitor, the child process that owns NVML
    inventory       the GPUs of the pod
    view            what the facts come to: an inventory, or why there is none
    detection       the GPUs that NVML knows and whose device nodes are in this pod
    partition       tickets, grants and holders
    desk            what the worker knows and decides of its GPUs, as the steps may ask for it
    identity_file   gpus.json, which tells a container its GPUs
    elf             the SONAME of a library, and what a program needs to be loaded
    hooks           what of a CDI spec's hooks Greenroom does itself
    links           the private directory of driver libraries
    granted_edits   a CDI spec's edits for exactly the GPUs of a grant, with the nodes of this host
    image_folder    the image's own folder of CUDA libraries
    injection_plan  all of that for one container, and its config.json with it
    restored_edits  the plan with which a restored container has the shape that it had
    live_cuda       whether an actor has a live CUDA context, by two witnesses
    cuda_checkpoint where a container has NVIDIA's cuda-checkpoint
    toolkit         NVIDIA's container toolkit: where it is, what of it can be run, which version it is
    driver_folders  in which directories the driver's libraries may be
    driver_files    the driver's libraries: where they are, and of which driver
    generating      one run of nvidia-ctk
    toolkit_errors  nvidia-ctk's failures: their classes, and which reason each is
    spec_check      whether what it generated can be used in this pod
    host_look       what this pod has at the paths that a spec names
    spec_inventory  the GPUs that a spec tells of
    spec_identity   what a spec belongs to, and the stamps by which nothing has changed
    checked_specs   from a spec's bytes to one that is kept
    pod_specs       the spec of a pod that has it generated
    host_specs      the spec of a pod that is given one
    rerooting       a spec whose paths are those of another root
    driver_params   what the driver's module says of device files

Source: DESIGN, "Partition", "JSON shapes" and the rules for sandboxes.
"""
