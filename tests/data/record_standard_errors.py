"""Records parameters and standard errors that statsmodels finds: writes standard_errors.json beside it.

    python record_standard_errors.py
"""

import json
import pathlib

import numpy as np
import statsmodels
import statsmodels.api as sm

from record_scipy import X, Y

COUNTS = np.array([18, 17, 15, 20, 10, 20, 25, 13, 12])


def main():
    i = np.arange(9)
    design = np.stack([np.ones(9), i % 3 == 1, i % 3 == 2, i // 3 == 1, i // 3 == 2], axis=1).astype(float)
    fits = {
        "poisson": sm.GLM(COUNTS, design, family=sm.families.Poisson()).fit(tol=1e-14, maxiter=200),
        "logistic": sm.GLM(Y, X, family=sm.families.Binomial()).fit(tol=1e-14, maxiter=200),
        "linear": sm.OLS(Y, X).fit(),
    }
    record = {"statsmodels": statsmodels.__version__}
    for name, fit in fits.items():
        covariance = np.asarray(fit.cov_params())
        record[name] = {"params": fit.params.tolist(), "errors": fit.bse.tolist(), "covariance": covariance.tolist()}
    text = json.dumps(record).replace('"}, "', '"},\n"').replace('}, "', '},\n"') + "\n"
    pathlib.Path(__file__).with_name("standard_errors.json").write_text(text)


if __name__ == "__main__":
    main()
