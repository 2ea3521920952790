"""Fields from values at points without a network: kriging, RBFs, kernel ridge regression."""
