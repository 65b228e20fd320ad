"""When an execution begins or goes on: its time, its turn among tenants, its slot, and what a crash forgot."""
