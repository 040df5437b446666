"""`python -m streams.cli` is `keepsake`, also where the package is not installed."""

from streams.cli.main import main

main()
