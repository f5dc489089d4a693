"""One verdict: whether a snapshot can be restored here, as the list of all that differs. Pure, and known beforehand.

    difference  one thing that differs, what a restore here would find, and the refusal that comes of it
    verdict     everything that differs: machine, runsc, containers, GPUs, volumes
    shapes      of one container, what of its bundle differs

Measured on runsc 20240729: it compares nothing itself. Another platform restores and then dies; other overlay or
network flags fail at the last container; a container name that is missing leaves the others waiting for ever; other
arguments, users and mounts are passed over without a word, and the container runs on with those of the snapshot.
A current runsc wants the identical version and compares each container's spec, and says so from deep inside.
"""

from .difference import ContainerHere, Difference, Force, Here, Injected, refusal
from .verdict import differences

__all__ = ["ContainerHere", "Difference", "Force", "Here", "Injected", "differences", "refusal"]
