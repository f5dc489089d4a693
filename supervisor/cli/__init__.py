"""The commands: each module holds click commands under their own names; `greenroom.py` loads them."""
