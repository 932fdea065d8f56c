"""The loop and what it publishes: versions, the update job, its gate and status; the service lies in `service`.

- `registry`: immutable versions, and which one is served. `versions`: what lies on disk.
- `update`: the job itself, `mcnet.update`. `learning`: the tracker over the new periods. `gate`: whether a new model
  may be published. `status`: the folder of the loop, what the status page shows, the monitor of what was served.
"""
