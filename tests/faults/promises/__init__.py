"""What looks for violations: one function for each promise."""
