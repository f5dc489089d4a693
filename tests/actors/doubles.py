"""What a test double derives from: nothing, but for the type checker anything, as it stands in for a whole port."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Double = Any
else:
    Double = object
