"""Mechanisms without a product word: configuration, database, errors, clock, ids, crypto, queue, logs."""
