"""One module per role: what `keepsake run ROLE` starts."""
