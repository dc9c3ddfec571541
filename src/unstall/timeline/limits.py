"""Limits on what is read from files: somebody may have made a file to exhaust the memory or the
time of its reader.

The cost of reading and explaining a file grows linearly with its size. Each limit is far above what
profilers write.
"""

MOST_TRACE_EXPANSION = 250
"""The largest ratio of a trace's text to its compressed file. A trace of torch's profiler compresses 10 to 50 times."""
ALWAYS_UNPACKED_BYTES = 8 << 20
"""The size in bytes to which any compressed trace may unpack, whatever the ratio to its file."""
MOST_EVENT_BYTES = 16 << 20
"""The largest size in bytes of one event of a trace, and of the text before the first event."""
MOST_UNREADABLE_EVENTS = 10_000
"""How many broken events a trace may have before its first event that can be read."""
MOST_TEXT = 512 << 20
"""How many characters all distinct texts of a trace may have together."""
MOST_NAMED_DEVICES = 1024
"""How many devices of a trace may have a name."""
MOST_RACES, MOST_FAULTS, MOST_HELD = 10_000, 1_024, 10_000
"""How many races, faults, and parts of full memory a trace may describe. More of them are left out."""
MOST_UPLOADS, MOST_READS, MOST_DEPENDENCIES = 100_000, 100_000, 500_000
"""How many uploads, reads of a clock, and dependencies between operators a trace may describe."""
MOST_GROUPS, MOST_RANKS = 4096, 1 << 17
"""How many process groups a trace may have, and how many ranks a group."""
MOST_NOTES, LONGEST_NOTE = 16, 400
"""How many notes a trace may have, and how many characters a note."""
MOST_GLOBS, LONGEST_NAME = 64, 400
"""How many globs of the user's files a trace may set, and how many characters a glob or a name may have."""

MOST_TABLE_BYTES, MOST_TABLE_ROWS, LONGEST_TABLE_LINE = 4 << 20, 20_000, 4_000
"""How many bytes and how many rows a profiler's table may have, and how many characters a line of
it. torch shortens names and shapes in it.
"""

MOST_TIMELINE_BYTES = 16 << 30
"""The size in bytes to which a saved timeline may unpack."""
MOST_TIMELINE_EXPANSION = 100
"""The largest ratio of an unpacked timeline to its file. The file of a large timeline is about a sixth of it."""
ALWAYS_UNPACKED_TIMELINE_BYTES = 64 << 20
"""The size in bytes to which any saved timeline may unpack, whatever the ratio to its file."""
MOST_HEADER_EXPANSION = 16
"""The largest ratio of a saved timeline's texts to its file. The texts of a profiler are about as
large as the file. A text of two bytes takes 60 bytes in memory.
"""
ALWAYS_UNPACKED_HEADER_BYTES = 4 << 20
"""The size in bytes to which the texts of any saved timeline may unpack, whatever the ratio to its file."""

MOST_RESULT_BYTES = 64 << 20
"""The largest size in bytes of a saved result. Six bytes of the file can take 64 bytes in memory."""

MOST_DEVICES = 64
"""How many devices are explained one by one. One process drives no more: 8 MI300X in 8 parts each."""

MOST_LEFT_FILES, MOST_LEFT_LEVELS = 1_000, 3
"""How many files are looked at in the folder of a recording whose program was killed, and how
deeply its folders may be nested.
"""
MOST_LEFT_BYTES = 1 << 30
"""The largest size in bytes of a file in the folder of a recording whose program was killed."""
MOST_JOURNAL_BYTES = 64 << 20
"""The largest size in bytes of a recording's journal (the file in which a recording notes what happens to it)."""
