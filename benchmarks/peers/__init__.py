"""The peers: each runs in an environment of its own, through one small script, on the same rows as mcnet."""
