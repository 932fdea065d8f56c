"""The loop on a store: the update job, its gate and status; the service lies in `service`.

- `update`: the job itself, `mcnet.update`. `learning`: the tracker over the new periods. `watch`: what was served.
  `gate`: whether a new model may be published. `status`: what the status page shows. `alerts`: the webhook.
"""
