"""A soundness campaign: certified bounds against ball arithmetic and enumeration, `python -m tests.campaign`.

Nothing here but `requests.py` and `checks.py` knows the package: the dominating pairs are written down from the
definitions (docs/mechanisms/replacement.md, docs/mechanisms/truncated.md and the papers cited there) and composed by enumeration, closed
forms or requantised convolutions, in ball arithmetic or with counted rounding errors.

balls       enclosures of numbers, normal and Laplace tails
finite      pairs with finitely many outcomes, sampled, mixed, composed; exact
binomials   two losses, any number of steps
located     one step of noise around random centres; Gaussian sums
laplace     sums of Laplace steps, in closed form
allocated   one of two steps by certified quadrature; more of them from either side
quantised   sums of anything, by merging outcomes (lower) and splitting them (upper)
requests    random compositions, and their truth
checks      what the package answers, compared with the truth
runner      many of them, in parallel, resumable, and what came of it
"""
