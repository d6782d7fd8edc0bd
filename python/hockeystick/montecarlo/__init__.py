"""Estimates with confidence, importance sampling, and estimate–verify–release."""
