"""How a store fails (sql/)."""


class StoreUnavailable(Exception):
    """PostgreSQL cannot be reached, or went away; the same call may succeed later."""


class StoreRejected(Exception):
    """PostgreSQL does not take these values, and never will."""
