"""What may be done, by whom, and who must agree before."""
