"""Warm pools: what must match (`match`), their life (`life`), a changed period (`keep_alive`), why not (`explain`)."""
