"""What every package uses: types, small mathematics, compiled loops, files written whole or not at all."""
