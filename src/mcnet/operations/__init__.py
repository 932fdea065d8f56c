"""The loop on a store: the update job, its gate and status; the service lies in `service`.

- `update`: the job itself, `mcnet.update`. `learning`: the tracker over the new periods. `gate`: whether a new model
  may be published. `status`: what the status page shows, the monitor of what was served. `alerts`: the webhook.
"""
