"""The MCNet paper end to end: its data, base predictor, tables and figures.

- `commands`: `python -m reproduction`. `study`: every study by its name. `settings`, `sources`, `tasks`: what it runs
  on. `pages`: what it writes.
- Studies: `datasets`, `performance` (Table 1), `auxiliary` (Table 2), `balance` (Table 3), `headline` and
  `few_steps`, `sir`, `networks` (other monotone networks), `efficiency`, `curves`, `sensitivity`, `overfitting`,
  `expressiveness` (Figure 1, Theorem 1).
- `trials`: the methods compared, fitted and measured; `significance`: paired t-tests between them.
  `literal`: training as the paper says, and what pulls at its bins. `kept_trainings`: a long study goes on where it
  was. `with_features`: the published network beside an auxiliary one.
- Rows: `impressions` (simulated, shaped like those of the paper), `aliexpress` (as published); `base_predictor`,
  `real`: scores from features, for real rows.
- `published`: the figures that the paper prints. `plots`: the figures drawn. `documentation`: the figures of the page
  in docs, from committed results.
"""
