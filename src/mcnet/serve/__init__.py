"""The service: calibrate over HTTP, follow the registry, take in feedback.

- Starting: `start` runs the workers, `settings` is what they are told, `logs`, `tokens`.
- A request: `service` (one worker's application), `request`, `routes`, `handlers`, `problem` (errors).
- Predictions: `calibrate` (JSON), `rows`, `served` (one version), `versions` (the current one, swapped as a whole).
- Counting: `board` (numbers shared by the workers).
"""
