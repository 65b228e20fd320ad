"""What `gos backup` and `gos restore` do with files and buckets: `sources` opens them, `listing` and `extracting` read them."""
