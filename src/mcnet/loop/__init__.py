"""The loop: collect rows, learn, check, publish and watch, in one job that a scheduler runs after each period.

- `job`: the job itself, `mcnet.update`. `new_rows`: what it adds to the journal. `outcome`: what a run did.
- `learning`: learn the new periods of a journal, each judged by what was forecast for it before; `judged` has how
  a period came out, `checkpoints` the saved states of the tracker.
- `gate`: whether a new model may be published: `validity` (can it be served?), `comparison` (is it worse, over
  periods?), `shift` (how far do probabilities move?).
- `watch`: the monitor of what was served. `version_times`: which periods came after the fit of a version.
- `folder`: the files of the loop and its lock; `history` has a line per run, `status` what the status page shows.
"""
