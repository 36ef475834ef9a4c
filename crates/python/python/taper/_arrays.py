"""Arrays of NumPy, which is loaded with the first of them: a program that only translates would
spend more time on that than on the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def array(values: Any) -> npt.NDArray[np.float32]:
    """Numbers as an array; a view if they are in memory of the extension."""
    import numpy as np

    return np.asarray(values, dtype=np.float32)
