"""The service: calibrate over HTTP, follow the registry, take in feedback.

- `service`: workers. `settings`: folders, limits, token, log. `http`: requests, answers, errors, the route table.
- `handlers`: what answers each route. `calibrate`, `arrow`, `inference` (Open Inference Protocol), `feedback`.
- `served`: the current version, swapped as a whole. `board`: numbers shared by the workers, and for Prometheus.
- `state`: what the dashboard shows. `openapi`: the description of the service, made of its routes, and its pages.
- `schedule`: the update job after each period.
"""
