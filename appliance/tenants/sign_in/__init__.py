"""How people get in: passwords, codes, sessions, and the pace of guesses."""
