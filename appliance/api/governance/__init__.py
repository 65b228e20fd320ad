"""Routes of approvals, policies and kill switches."""
