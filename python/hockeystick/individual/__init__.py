"""Filters, odometers and accountants for each example, in memory or on disk."""
