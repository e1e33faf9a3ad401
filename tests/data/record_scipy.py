"""Records how many evaluations scipy's L-BFGS-B needs on standard problems: writes lbfgs_scipy.json beside it.

    python record_scipy.py

Counted is the evaluation at which the Euclidean norm of the gradient is at most 1e-8 for the first time. The history is of
10 differences, as in gradchain; ftol and gtol are such that only rounding errors end a run before that.
"""

import json
import pathlib

import numpy as np
import scipy
from scipy.optimize import minimize

NORM = 1e-8


def rosenbrock(x):
    a, b = 1 - x[:-1], x[1:] - x[:-1] ** 2
    gradient = np.zeros_like(x)
    gradient[:-1] += -2 * a - 400 * b * x[:-1]
    gradient[1:] += 200 * b
    return (a**2 + 100 * b**2).sum(), gradient


def himmelblau(p):
    x, y = p
    a, b = x * x + y - 11, x + y * y - 7
    return a * a + b * b, np.array([4 * a * x + 2 * b, 2 * a + 4 * b * y])


def beale(p):
    x, y = p
    value, gradient = 0.0, np.zeros(2)
    for k, c in ((1, 1.5), (2, 2.25), (3, 2.625)):
        r = c - x + x * y**k
        value += r * r
        gradient += 2 * r * np.array([y**k - 1, k * x * y ** (k - 1)])
    return value, gradient


def booth(p):
    x, y = p
    a, b = x + 2 * y - 7, 2 * x + y - 5
    return a * a + b * b, np.array([2 * a + 4 * b, 4 * a + 2 * b])


def matyas(p):
    x, y = p
    return 0.26 * (x * x + y * y) - 0.48 * x * y, np.array([0.52 * x - 0.48 * y, 0.52 * y - 0.48 * x])


def zakharov(x):
    half = 0.5 * np.arange(1, len(x) + 1)
    s = half @ x
    return x @ x + s**2 + s**4, 2 * x + (2 * s + 4 * s**3) * half


def styblinski_tang(x):
    return 0.5 * (x**4 - 16 * x**2 + 5 * x).sum(), 0.5 * (4 * x**3 - 32 * x + 5)


ROWS, COLUMNS = 40, 5
X = np.array([[((i * 7 + j * j * 13 + i * j) % 11 - 5) / 5 for j in range(COLUMNS)] for i in range(ROWS)])
Y = np.array([float((i * 5) % 7 < 3) for i in range(ROWS)])


def logistic(w):
    z = X @ w
    value = (np.logaddexp(0, z) - Y * z).sum() + 0.05 * (w @ w)
    return value, X.T @ (1 / (1 + np.exp(-z)) - Y) + 0.1 * w


# Each from its usual start first, then from others.
PROBLEMS = {
    "rosenbrock_2": (rosenbrock, [[-1.2, 1.0], [0.0, 0.0], [2.0, -2.0], [-3.0, -4.0]]),
    "rosenbrock_10": (rosenbrock, [[-1.2, 1.0] * 5, [0.0] * 10, [0.5, -0.5] * 5, [2.0] * 10]),
    "himmelblau": (himmelblau, [[0.0, 0.0], [1.0, 1.0], [-4.0, 1.0], [2.0, -5.0]]),
    "beale": (beale, [[1.0, 1.0], [0.0, 0.0], [2.0, 0.0], [3.5, 1.0]]),
    "booth": (booth, [[0.0, 0.0], [-5.0, 5.0], [10.0, -10.0], [2.0, 2.0]]),
    "matyas": (matyas, [[5.0, -3.0], [1.0, 0.0], [10.0, -10.0], [-4.0, -7.0]]),
    "zakharov": (zakharov, [[1.0] * 5, [0.5, -1.0, 2.0, -0.5, 1.0], [3.0, 1.0, 0.0, -1.0, 2.0], [-2.0] * 5]),
    "styblinski_tang": (styblinski_tang, [[-1.0] * 5, [0.5] * 5, [3.0, -1.0, 2.0, -4.0, 1.0], [4.0] * 5]),
    "logistic": (logistic, [[0.0] * 5, [1.0] * 5, [-2.0, 1.0, 0.0, 3.0, -1.0], [0.5, -0.5, 0.5, -0.5, 0.5]]),
}


def evaluations(function, start):
    seen = []

    def watched(x):
        value, gradient = function(x)
        seen.append(np.linalg.norm(gradient))
        return value, gradient

    options = {"maxcor": 10, "ftol": 0, "gtol": 1e-13, "maxiter": 10_000, "maxfun": 100_000}
    minimize(watched, np.array(start), jac=True, method="L-BFGS-B", options=options)
    return next((i + 1 for i, norm in enumerate(seen) if norm <= NORM), None)


def main():
    runs = [
        {"problem": name, "start": start, "evaluations": evaluations(function, start)}
        for name, (function, starts) in PROBLEMS.items()
        for start in starts
    ]
    record = {"scipy": scipy.__version__, "gradient_norm": NORM, "memory": 10, "runs": runs}
    text = json.dumps(record).replace('[{"problem"', '[\n  {"problem"').replace(', {"problem"', ',\n  {"problem"') + "\n"
    pathlib.Path(__file__).with_name("lbfgs_scipy.json").write_text(text)


if __name__ == "__main__":
    main()
