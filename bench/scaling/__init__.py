"""A model of how an operator grows: batches, requests, listings and recoveries for many buckets and
hosts."""
