"""The limits on what is read from files. A file may have been made to exhaust the memory or the time of who reads it.

The cost of reading and explaining a file grows linearly with its size. Each limit is far above what profilers write.
"""

MOST_TRACE_EXPANSION = 250
"""How many times as long as a compressed trace its text may be. Kineto's text compresses 10 to 50 times."""
ALWAYS_UNPACKED_BYTES = 8 << 20
"""The text to which any compressed trace may unpack."""
MOST_EVENT_BYTES = 16 << 20
"""The size of one event of a trace, and of the text before the events."""
MOST_TEXT = 512 << 20
"""The characters of all distinct strings of a trace."""
MOST_NAMED_DEVICES = 1024
"""The devices of a trace whose names are kept."""
MOST_RACES, MOST_FAULTS, MOST_HELD = 10_000, 1_024, 10_000
"""The races, the faults, and the parts of memory in use that a trace may describe. More are left out."""
MOST_UPLOADS, MOST_READS, MOST_DEPENDENCIES = 100_000, 100_000, 500_000
"""The uploads, the reads of a clock, and the dependencies between operators that a trace may describe."""
MOST_GROUPS, MOST_RANKS = 4096, 1 << 17
"""The process groups of a trace, and the ranks of a group."""
MOST_NOTES, LONGEST_NOTE = 16, 400
"""The notes of a trace, and their characters."""
MOST_GLOBS, LONGEST_NAME = 64, 400
"""The globs of the user's files that a trace may set, and their characters."""

MOST_TIMELINE_BYTES = 16 << 30
"""The size to which a saved timeline may unpack."""
MOST_TIMELINE_EXPANSION = 100
"""How many times as large as its file a saved timeline may be. Large files pack to a sixth."""
ALWAYS_UNPACKED_TIMELINE_BYTES = 64 << 20
"""The size to which any saved timeline may unpack."""
MOST_HEADER_EXPANSION = 16
"""How many times as large as its file the names of a saved timeline may be. Those of profilers are about as large as
the file. A name of two bytes takes 60 in memory."""
ALWAYS_UNPACKED_HEADER_BYTES = 4 << 20
"""The size to which the names of any saved timeline may unpack."""

MOST_RESULT_BYTES = 64 << 20
"""The size of a saved result. A span of six bytes takes 64 in memory."""

MOST_DEVICES = 64
"""The devices that are explained one by one. One process drives no more: 8 MI300X in 8 parts each."""

MOST_LEFT_FILES, MOST_LEFT_LEVELS = 1_000, 3
"""The files of a recording's folder that was left behind, and its nested folders."""
MOST_LEFT_BYTES = 1 << 30
"""The size of a file in such a folder."""
MOST_JOURNAL_BYTES = 64 << 20
"""The size of a recording's journal."""
