"""How far an online model is from the one that never crashed."""
