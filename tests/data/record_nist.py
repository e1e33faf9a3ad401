"""Records what scipy reaches on the nonlinear problems of NIST's Statistical Reference Datasets, in `nist_scipy.json`.

    pip install numpy scipy
    python record_nist.py           # runs the problems of `nist.json`
    python record_nist.py FOLDER    # makes `nist.json` of NIST's .dat files before

The files are at https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml and in the public domain.

L-BFGS-B and least_squares (method lm, MINPACK's Levenberg-Marquardt) have tolerances such that only rounding errors and
the limit of evaluations end a run. A run is judged by the digits that it shares with the certified parameters: the
least -log10(|b - certified| / |certified|) of all parameters, from 0 to 11. Derivatives are exact, by complex steps.
"""

import json
import pathlib
import re
import sys

import numpy as np
import scipy
from scipy.optimize import least_squares, minimize

HERE = pathlib.Path(__file__).parent
LIMIT = 10_000
exp = np.exp


def rational(b, x):
    """The numerator has one coefficient more than half of all."""
    n = len(b) // 2 + 1
    return sum(b[i] * x**i for i in range(n)) / (1 + sum(b[n + i] * x ** (i + 1) for i in range(len(b) - n)))


def arctan(z):
    return np.arctan(z.real) + 1j * z.imag / (1 + z.real**2)


def peaks(b, x):
    return (b[0] * exp(-b[1] * x) + b[2] * exp(-((x - b[3]) ** 2) / b[4] ** 2)
            + b[5] * exp(-((x - b[6]) ** 2) / b[7] ** 2))


def waves(b, x):
    wave = lambda period, c, s: c * np.cos(2 * np.pi * x / period) + s * np.sin(2 * np.pi * x / period)
    return b[0] + wave(12, b[1], b[2]) + wave(b[3], b[4], b[5]) + wave(b[6], b[7], b[8])


MODELS = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": lambda b, x: b[0] * (1 - exp(-b[1] * x)),
    "Chwirut": lambda b, x: exp(-b[0] * x) / (b[1] + b[2] * x),
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": waves,
    "Eckerle4": lambda b, x: b[0] / b[1] * exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss": peaks,
    "Hahn1": rational,
    "Kirby2": rational,
    "Lanczos": lambda b, x: b[0] * exp(-b[1] * x) + b[2] * exp(-b[3] * x) + b[4] * exp(-b[5] * x),
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * exp(-x * b[3]) + b[2] * exp(-x * b[4]),
    "Misra1a": lambda b, x: b[0] * (1 - exp(-b[1] * x)),
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda b, x: b[0] - b[1] * x[0] * exp(-b[2] * x[1]),
    "Rat42": lambda b, x: b[0] / (1 + exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - arctan(b[2] / (x - b[3])) / np.pi,
    "Thurber": rational,
}


def convert(file):
    lines = file.read_text().splitlines()
    table = [line.split("=")[1].split() for line in lines[40:] if re.match(r"\s*b\d\s*=", line)]
    rows = np.array([[float(n) for n in line.split()] for line in lines[60:] if line.strip()])
    return {
        "name": file.stem,
        "starts": [[float(row[k]) for row in table] for k in (0, 1)],
        "certified": [float(row[2]) for row in table],
        "y": rows[:, 0].tolist(),
        "x": rows[:, 1:].T.tolist(),
    }


def run(problem, start):
    model = MODELS.get(problem["name"]) or MODELS[problem["name"].rstrip("123")]
    x, y, certified = (np.array(problem[key]) for key in ("x", "y", "certified"))
    x, y = (x, np.log(y)) if problem["name"] == "Nelson" else (x[0], y)
    n = len(start)
    calls = 0

    def residuals(b):
        nonlocal calls
        calls += 1
        return model(np.asarray(b), x).real - y

    def jacobian(b):
        return np.array([model(b + 1e-100j * np.eye(n)[j], x).imag / 1e-100 for j in range(n)]).T

    def loss(b):
        r = residuals(b)
        return r @ r, 2 * jacobian(b).T @ r

    def judged(b):
        with np.errstate(all="ignore"):
            digits = -np.log10(np.abs(b - certified) / np.abs(certified)).min()
        return {"digits": round(float(np.clip(np.nan_to_num(digits), 0, 11)), 1), "evaluations": calls}

    def lbfgs(unit):
        nonlocal calls
        calls = 0
        scaled = lambda q: (lambda value, gradient: (value, gradient * unit))(*loss(q * unit))
        options = {"maxcor": 10, "ftol": 0, "gtol": 0, "maxiter": LIMIT, "maxfun": LIMIT}
        return judged(minimize(scaled, start / unit, jac=True, method="L-BFGS-B", options=options).x * unit)

    def marquardt():
        nonlocal calls
        calls = 0
        tolerances = {name: np.finfo(float).eps for name in ("ftol", "xtol", "gtol")}
        return judged(least_squares(residuals, start, jac=jacobian, method="lm", max_nfev=LIMIT, **tolerances).x)

    with np.errstate(all="ignore"):
        return {"lbfgs": lbfgs(np.ones(n)), "scaled": lbfgs(np.abs(start)), "lm": marquardt()}


def lines(items):
    return "[\n  " + ",\n  ".join(json.dumps(item) for item in items) + "\n]"


def main():
    if len(sys.argv) > 1:
        problems = [convert(file) for file in sorted(pathlib.Path(sys.argv[1]).glob("*.dat"))]
        credit = "Statistical Reference Datasets, nonlinear regression; National Institute of Standards and Technology"
        text = f'{{"credit": "{credit}", "problems": {lines(problems)}}}\n'
        (HERE / "nist.json").write_text(text)
    problems = json.loads((HERE / "nist.json").read_text())["problems"]
    runs = [
        {"problem": problem["name"], "start": i + 1, **run(problem, np.array(start))}
        for problem in problems
        for i, start in enumerate(problem["starts"])
    ]
    (HERE / "nist_scipy.json").write_text(f'{{"scipy": "{scipy.__version__}", "runs": {lines(runs)}}}\n')


if __name__ == "__main__":
    main()
