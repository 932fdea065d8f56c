"""The service: calibrate over HTTP, follow the registry, take in feedback.

- `server`: the workers. `app`: what answers each path (Litestar). `problems`: errors. `metrics`: for Prometheus.
- `settings`: limits, tokens, log. `calibrate`, `arrow`, `inference` (Open Inference Protocol), `feedback`.
- `served`: the current version, swapped as a whole. `state`: what the dashboard shows.
- `schedule`: the update job after each period.
"""
