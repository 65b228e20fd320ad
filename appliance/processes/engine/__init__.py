"""What happens next in an execution, and the one loop that performs it and commits under its fence."""
