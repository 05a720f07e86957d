"""The consuming side of the queue: claims, leases, settlement, back-off. It knows attempts, not models."""
