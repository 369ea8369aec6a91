"""What a batch and a recovery cost as one thing grows and everything else stays as it is."""
