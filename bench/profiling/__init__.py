"""Where the time of a batch on Spark goes: traced in the workers, and in Spark's own logs."""
