"""The service: calibrate over HTTP, follow the registry, take in feedback.

- `service`: workers, and the update job after each period. `http`: settings, requests, answers, errors, tokens, logs.
- `handlers`: what answers each route. `calibrate` (JSON and Arrow), `inference` (Open Inference Protocol), `feedback`.
- `served`: the current version, swapped as a whole. `board`: numbers shared by the workers. `state`: what the dashboard
  and Prometheus show. `openapi`: the description of the service, and its pages.
"""
