"""What a solution holds, kind by kind: compared with the tenant, applied and written back."""
