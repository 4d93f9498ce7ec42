"""Warm pools: what must match (`match`), their life (`life`), changed periods (`keep_alive`), why or why not (`explain`)."""
