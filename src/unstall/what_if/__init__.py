"""Predicts the gain of a change to the code. Edits change a `Program`, and a replay of the program gives the new
time.
"""
