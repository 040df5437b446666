"""Errors whose messages are for the user."""


class Explained(Exception):
    """Something cannot be done; the message says what was wrong and what to do, with no text of a chat."""
