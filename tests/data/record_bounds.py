"""Records where scipy's L-BFGS-B ends on problems with bounds, and after how many evaluations: writes bounds_scipy.json
beside it.

    python record_bounds.py

Counted is the evaluation at which the Euclidean norm of the projected gradient is at most 1e-8 for the first time. The
history is of 10 differences, as in gradchain; ftol and gtol are such that only rounding errors end a run before that.
"""

import json
import pathlib

import numpy as np
import scipy
from scipy.optimize import minimize

from record_scipy import beale, booth, himmelblau, logistic, matyas, rosenbrock, styblinski_tang, zakharov

NORM = 1e-8
INFINITE = float("inf")


def hilbert(x):
    """Least squares with the matrix of Hilbert, of which the answer without bounds has both signs."""
    n = len(x)
    matrix = 1 / (1.0 + np.arange(n)[:, None] + np.arange(n)[None, :])
    residual = matrix @ (x - (-1.0) ** np.arange(n))
    return 0.5 * residual @ residual, matrix.T @ residual


def steep(x):
    """A quadratic with curvatures from 1 to 1e6, and all elements coupled."""
    n = len(x)
    residual = x - np.where(np.arange(n) % 2 == 0, 2.0, -0.5)
    slope = 10.0 ** (6 * np.arange(n) / (n - 1)) * residual + residual.sum()
    return 0.5 * residual @ slope, slope


def powell(x):
    """Powell's function, singular at its minimum without bounds."""
    a, b, c, d = x[0] + 10 * x[1], x[2] - x[3], x[1] - 2 * x[2], x[0] - x[3]
    value = a * a + 5 * b * b + c**4 + 10 * d**4
    gradient = [2 * a + 40 * d**3, 20 * a + 4 * c**3, 10 * b - 8 * c**3, -10 * b - 40 * d**3]
    return value, np.array(gradient)


def obstacle(x):
    """A string under a load, between two walls."""
    slope = 4 * x
    slope[1:] -= x[:-1]
    slope[:-1] -= x[1:]
    load = np.sin(np.arange(len(x)))
    return 0.5 * x @ slope - load @ x, slope - load


# Function, start, bounds.
PROBLEMS = {
    "rosenbrock_2 above": (rosenbrock, [-1.2, 1.0], [-INFINITE, 1.5], INFINITE),
    "rosenbrock_2 beside": (rosenbrock, [-1.2, 1.0], -2.0, [0.5, 2.0]),
    "rosenbrock_10 between": (rosenbrock, [0.5, -0.5] * 5, -0.5, 0.8),
    "rosenbrock_10 above": (rosenbrock, [2.0] * 10, 1.2, 3.0),
    "himmelblau": (himmelblau, [0.0, 0.0], -1.0, 2.5),
    "beale": (beale, [1.0, 1.0], [-1.0, 0.0], [2.0, 0.4]),
    "booth": (booth, [0.0, 0.0], -5.0, [0.5, 5.0]),
    "matyas": (matyas, [5.0, -3.0], [1.0, -10.0], 10.0),
    "zakharov": (zakharov, [1.0] * 5, 0.1, 2.0),
    "styblinski_tang": (styblinski_tang, [-1.0] * 5, -2.5, 0.0),
    "logistic small": (logistic, [0.0] * 5, -0.1, 0.1),
    "logistic positive": (logistic, [0.0] * 5, 0.0, INFINITE),
    "logistic started outside": (logistic, [-3.0] * 5, [-1.0, 0.2, -1.0, -1.0, 0.0], [1.0, 0.2, 1.0, 1.0, INFINITE]),
    "hilbert": (hilbert, [0.0] * 8, 0.0, INFINITE),
    "steep above": (steep, [0.0] * 8, -INFINITE, 1.0),
    "steep between": (steep, [0.0] * 8, 0.0, 1.0),
    "powell": (powell, [3.0, -1.0, 0.0, 1.0], [0.1, -1.0, 0.1, -1.0], [10.0, 1.0, 1.0, 1.0]),
    "obstacle": (obstacle, [0.0] * 100, 0.0, 0.2),
}


def run(name, function, start, lower, upper):
    start = np.array(start)
    lower, upper = np.broadcast_to(lower, start.shape), np.broadcast_to(upper, start.shape)
    norms = []

    def watched(x):
        value, gradient = function(x)
        norms.append(np.linalg.norm(x - np.clip(x - gradient, lower, upper)))
        return value, gradient

    options = {"maxcor": 10, "ftol": 0, "gtol": 1e-13, "maxiter": 10_000, "maxfun": 100_000}
    bounds = list(zip(lower, upper))
    found = minimize(watched, np.clip(start, lower, upper), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    number = lambda x: None if np.isinf(x) else float(x)
    return {
        "problem": name,
        "start": start.tolist(),
        "lower": [number(x) for x in lower],
        "upper": [number(x) for x in upper],
        "value": float(found.fun),
        "params": found.x.tolist(),
        "evaluations": next((i + 1 for i, norm in enumerate(norms) if norm <= NORM), None),
    }


def main():
    runs = [run(name, *problem) for name, problem in PROBLEMS.items()]
    record = {"scipy": scipy.__version__, "gradient_norm": NORM, "memory": 10, "runs": runs}
    text = json.dumps(record).replace('[{"problem"', '[\n  {"problem"').replace(', {"problem"', ',\n  {"problem"') + "\n"
    pathlib.Path(__file__).with_name("bounds_scipy.json").write_text(text)


if __name__ == "__main__":
    main()
