"""Rows to try things on: the simulator, AliExpress, flights, and ways to split them."""
