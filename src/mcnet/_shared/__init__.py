"""What every package uses: arrays, compiled loops, files written whole or not at all, messages.

- `arrays`: types of arrays, logit, sigmoid, clipping, sums by group.
- `distinct_values`: a row of each value of a column, quickly.
- `loops`: compile a hot loop where numba is installed; buckets read off the bits of a score.
- `files`: write a file completely or not at all; locks, JSON documents with a checksum, JSON lines.
- `messages`: warnings at the caller's line, missing extras, the width of text in a terminal.
"""
