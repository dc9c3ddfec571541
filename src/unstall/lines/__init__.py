"""Records which source line each thread of the program runs. The parts are functions that read the
stack of frames when a call is made, and the line clock, which follows each thread from line to
line.
"""
