"""The service: calibrate over HTTP, follow the registry, take in feedback.

- `server`: the workers. `protocol`: HTTP. `app`, `endpoints`: from a request to its answer. `problems`: errors.
- `handlers`: what answers each request; by `calibrate`, `arrow`, `inference` (Open Inference Protocol), `feedback`.
- `openapi`: the description, and the pages. `metrics`: for Prometheus. `settings`: limits, tokens, log.
- `served`: the current version, swapped as a whole. `state`: what the dashboard shows.
- `schedule`: the update job after each period.
"""
