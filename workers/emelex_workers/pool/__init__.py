"""The long-lived pool: `run` is the door, `consumer` the parent, `worker` and `scheduler` its children."""
