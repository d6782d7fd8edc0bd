"""From a description to certified answers: profile, grid, report, ledger, calibration."""
