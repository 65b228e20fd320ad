"""Pages of DataPool: collections, their tables, entities, imports and schemas."""
