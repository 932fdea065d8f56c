"""The study of the paper trains networks: without torch there is nothing to test."""

from mcnet._shared.messages import has_extra

if not has_extra("networks"):
    collect_ignore_glob = ["test_*.py"]
