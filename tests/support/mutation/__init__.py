"""Breaks kernels by rule and tells whether their tests notice, whatever language the kernels are in."""
