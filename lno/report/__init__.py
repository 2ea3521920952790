"""Figures and pages, made from stored results."""
