"""Hours of mixed load on one appliance, whose memory, descriptors, threads and write-ahead log must stay as they are."""
