"""Retention and maintenance of the store: what goes when, what never goes, and the upkeep of the file.

Everything here is a bounded phase that returns a frozen report; `MemoryStore.maintain` runs them in order. Claims of
dead workers are counted by the queue, whose rows they are: see emelex_workers.maintain.
"""
