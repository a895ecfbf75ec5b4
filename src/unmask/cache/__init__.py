"""Key/value caches of one sequence; exact ones say so bit for bit."""
