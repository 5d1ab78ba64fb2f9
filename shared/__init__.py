"""What every ds4 program shares and no backend owns: files, text, sampling, protocols."""

# Checked at start-up: `shared` is a common name, and a foreign package of that name must not be used.
DS4_PACKAGE = "ds4"

__version__ = "0.1.0"
