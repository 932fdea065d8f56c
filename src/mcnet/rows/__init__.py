"""Where impressions come from: arrays, tables and files, validated; simulated logs; splits."""
