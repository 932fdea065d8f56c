"""The service: calibrate over HTTP, follow the registry, take in feedback.

- Starting: `start` runs the workers, `settings` are their options, `logs`, `tokens`.
- A request: `service` (one worker's application), `request`, `route_table`, `handlers`, `problem` (errors).
- Predictions: `calibrate` (JSON), `arrow`, `inference` (Open Inference Protocol), `rows`. What predicts: `served` (one
  version), `versions` (the current one, swapped as a whole).
- For people: `pages` (dashboard, list of requests), `state` (what the dashboard shows), `openapi`.
- Feedback: `feedback`, `periods`, `learning` (the update job after each period).
- Counting: `board` (numbers shared by the workers), `metrics` (Prometheus), `loop_status`.
"""
