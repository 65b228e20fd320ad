"""Infrastructure that knows no product concepts: configuration, database, errors, clock, ids, crypto, queue, logs."""
