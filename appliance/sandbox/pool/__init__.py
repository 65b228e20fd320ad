"""The appliance's side of the sandbox: processes, the queues in front of them, and the requests to them."""
