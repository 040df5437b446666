"""`keepsake demo`: three conversations played through the whole system, in a data directory of its own."""
