"""The appliance's side: sandbox processes, the queues before them, and what is asked of them."""
