"""The doctor: each judgement from plain facts, then all of them together, on fakes and on this machine."""
