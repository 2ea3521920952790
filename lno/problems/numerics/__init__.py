"""Numerics that several problems share."""
