"""matplotlib's Figure that a notebook displays by itself; the only file that imports matplotlib at once."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """Displays without pyplot and without magic commands, sharp on dense screens."""

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=200)
        return out.getvalue(), {"width": round(100 * self.get_figwidth())}
