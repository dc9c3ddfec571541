"""The limits on what is read from files. Somebody may have made a file to exhaust the memory or the time of its reader.

The cost of reading and explaining a file grows linearly with its size. Each limit is far above what profilers write.
"""

MOST_TRACE_EXPANSION = 250
"""The largest ratio of a trace's text to its compressed file. Kineto's text compresses 10 to 50 times."""
ALWAYS_UNPACKED_BYTES = 8 << 20
"""The size of text to which a compressed trace may always unpack, whatever the ratio."""
MOST_EVENT_BYTES = 16 << 20
"""The size of one event of a trace, and of the text before the events."""
MOST_UNREADABLE_EVENTS = 10_000
"""The broken events before the first event of a trace that can be read."""
MOST_TEXT = 512 << 20
"""The characters of all distinct strings of a trace."""
MOST_NAMED_DEVICES = 1024
"""The devices of a trace whose names are kept."""
MOST_RACES, MOST_FAULTS, MOST_HELD = 10_000, 1_024, 10_000
"""The number of races, of faults, and of parts of memory in use that a trace may describe. More are left out."""
MOST_UPLOADS, MOST_READS, MOST_DEPENDENCIES = 100_000, 100_000, 500_000
"""The uploads, the reads of a clock, and the dependencies between operators that a trace may describe."""
MOST_GROUPS, MOST_RANKS = 4096, 1 << 17
"""The process groups of a trace, and the ranks of a group."""
MOST_NOTES, LONGEST_NOTE = 16, 400
"""The notes of a trace, and their characters."""
MOST_GLOBS, LONGEST_NAME = 64, 400
"""The globs of the user's files that a trace may set, and their characters."""

MOST_TABLE_BYTES, MOST_TABLE_ROWS, LONGEST_TABLE_LINE = 4 << 20, 20_000, 4_000
"""The bytes and the rows of a profiler's table, and the characters of its lines. torch cuts names and shapes off."""

MOST_TIMELINE_BYTES = 16 << 30
"""The size to which a saved timeline may unpack."""
MOST_TIMELINE_EXPANSION = 100
"""The largest ratio of an unpacked timeline to its file. Large files pack to a sixth."""
ALWAYS_UNPACKED_TIMELINE_BYTES = 64 << 20
"""The size to which a saved timeline may always unpack, whatever the ratio."""
MOST_HEADER_EXPANSION = 16
"""The largest ratio of a saved timeline's names to its file. Profilers' names are about as large as the file. A name of
two bytes takes 60 bytes in memory."""
ALWAYS_UNPACKED_HEADER_BYTES = 4 << 20
"""The size to which the names of a saved timeline may always unpack, whatever the ratio."""

MOST_RESULT_BYTES = 64 << 20
"""The size of a saved result. A span of six bytes takes 64 bytes in memory."""

MOST_DEVICES = 64
"""The number of devices that are explained one by one. One process drives no more: 8 MI300X in 8 parts each."""

MOST_LEFT_FILES, MOST_LEFT_LEVELS = 1_000, 3
"""The number of files in a recording's folder that was left behind, and the depth of its nested folders."""
MOST_LEFT_BYTES = 1 << 30
"""The size of a file in such a folder."""
MOST_JOURNAL_BYTES = 64 << 20
"""The size of a recording's journal."""
