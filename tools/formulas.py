"""Formulas as a book prints them, from how docs/ writes them: e^{−x}, H_{e^ε}, and indented blocks, which stand apart.

They are HTML, so that they need no script and no network, and break where a screen is narrow.
"""

from __future__ import annotations

import html
import re

# What is left as it is (code between fences, and items of lists, whose further paragraphs are indented too), and blocks.
_KEPT = re.compile(r"(^```.*?^```$|^- [^\n]*\n(?:(?: [^\n]*)?\n)*)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"(?<=\n\n)(?: {4}[^\n]*\n)+(?=\n)")


def inline(text: str) -> str:
    """e^{−x}, 2^53 and k_u as a book prints them.

    >>> inline("H_{e^ε} <= 10^-6, x_i")
    'H<sub>e<sup>ε</sup></sub> <= 10<sup>-6</sup>, x<sub>i</sub>'
    """
    text = re.sub(r"(?<=[\w)\]|}])\^([−-]?\d+|[^\W\d_]+)(?![\w{])", r"<sup>\1</sup>", text)
    text = re.sub(
        r"(?<![A-Za-z0-9_])([^\W\d_]+[\u0302\u0303']?|[⁰¹1])_([^\W_]|none|max|∞)(?![^\W¹²³ᵀ]|\{)",
        r"\1<sub>\2</sub>",
        text,
    )
    text = re.sub(r"(?<=[\w)\]|>])\^\(([^()]+)\)", r"<sup>\1</sup>", text)
    for _ in range(3):  # they are nested
        text = re.sub(r"\^\{([^{}]+)\}", r"<sup>\1</sup>", text)
        text = re.sub(r"_\{([^{}]+)\}", r"<sub>\1</sub>", text)
    return text


def displayed(markdown: str) -> str:
    """Indented blocks as lines that may break, with variables in italics and their numbers on the right.

    >>> displayed("As\\n\\n    p_k < e^{−2t} ln x      (1)\\n\\nis.").splitlines()[2]
    '<div class="formula"><p><span>(1)</span><i>p</i><sub><i>k</i></sub> &lt; <i>e</i><sup>−2<i>t</i></sup> ln <i>x</i></p></div>'
    """
    parts = _KEPT.split(markdown)
    parts[::2] = [_BLOCK.sub(_block, text) for text in parts[::2]]
    return "".join(parts)


def _block(found: re.Match[str]) -> str:
    """The lines of a block."""
    lines = []
    for line in html.escape(found[0], quote=False).strip("\n").split("\n"):
        line = line.strip()
        number = re.search(r"^\(\w\)(?=\s{2})|(?<=\s{6})\(\w\)$", line)
        if number:
            line = (line[: number.start()] + line[number.end() :]).strip()
        line = re.sub(r"(?<![^\W_])(LR|\w|∫)_(\w+)", r"\1_{\2}", line)
        line = re.sub(r"\^([−-]?\d+|[^\W\d_]|∞)(?!\w)", r"^{\1}", line)
        line = re.sub(r" {3,}", "&emsp;", inline(line))
        parts = re.split(r"(<[^>]*>|&\w+;)", line)
        parts[::2] = [
            re.sub(r"(?<![^\W\d_])[a-zA-Zα-ω](?![^\W\d_])", r"<i>\g<0></i>", part) for part in parts[::2]
        ]
        lines.append(f"<p>{f'<span>{number[0]}</span>' if number else ''}{''.join(parts)}</p>")
    return f'<div class="formula">{"".join(lines)}</div>\n'
