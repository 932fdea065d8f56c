"""What every package uses: types, small mathematics, compiled loops, files written whole or not at all.

- `typing`: the array types. `math`: logit, sigmoid, clipping, sums by group.
- `numba_loops`: compile a hot loop where numba is installed. `score_buckets`: buckets read off the bits of a score.
- `atomic_files`: write a file completely or not at all. `file_lock`: one process at a time. `json_files`:
  a document with a checksum. `json_lines`: a file that grows by a line.
- `extras`: the message where an optional library is missing. `user_warnings`: warn at the caller's line.
- `terminal_text`: numbers and tables as people read them. `disk_paths`: paths on a disk, distinguished from addresses.
"""
