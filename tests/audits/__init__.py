"""The audit as a table: every planted fault, whether it is caught, and what it says of healthy runs."""
