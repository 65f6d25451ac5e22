"""The process that renders conversations, one after the other.

It is a process of its own because what a template costs can only be bounded from outside: `9**9**9` holds the interpreter
for hours, `'x' * 10**10` takes all memory. Memory, files, processes and processor time are limited here, before the first
template is seen; whoever started this process ends it when a rendering takes too long, and starts another.

Standard input and output are one socket; numbers are little endian. A request is u32 count, then u64 size and bytes for
each field: command, template, format, row, variables, controls (formats.render; for the command "find" the row is a
config.json). A reply is u64 size, then a kind and its bytes:
  0, 1  parts, to be tokenised as one text or each on its own: u8 literal, u64 size and bytes for each
  ?     the message with which the template itself refused
  !     a sentence on what failed
  ~     a sentence on the limit that was passed; this process then ends
After its start the process sends one reply: 0 if it is ready.
"""
import fcntl
import importlib
import os
import pathlib
import resource
import signal
import struct
import sys

MEMORY = int(sys.argv[1])  # bytes of address space, the interpreter's own included
SECONDS = int(sys.argv[2])  # of processor time for one request
OUTPUT = int(sys.argv[3])  # bytes of one prompt
MESSAGE = 1 << 14  # bytes of an error message
# What jinja2 and Python import when a template first needs it: later, files are out of reach.
ON_DEMAND = ("encodings.ascii encodings.idna encodings.latin_1 encodings.raw_unicode_escape "
             "encodings.unicode_escape encodings.utf_16 encodings.utf_32 html jinja2.constants jinja2.debug pprint textwrap "
             "unicodedata").split()


class TooLong(Exception):
    pass


def read_exactly(count):
    data = bytearray()
    while len(data) < count:
        piece = os.read(0, min(count - len(data), 1 << 20))
        if not piece:
            os._exit(0)  # whoever started us is gone
        data += piece
    return data


def read_request():
    (count,) = struct.unpack("<I", read_exactly(4))
    return [read_exactly(struct.unpack("<Q", read_exactly(8))[0]).decode() for _ in range(count)]


def write(kind, pieces=()):
    data = kind + b"".join(pieces)
    data = memoryview(struct.pack("<Q", len(data)) + data)
    while data:
        try:
            data = data[os.write(1, data):]
        except BrokenPipeError:
            os._exit(0)


def limit(kind, value):
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def confine():
    """No more memory, files, sockets or processes than now, until the process ends."""
    limit(resource.RLIMIT_AS, MEMORY)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, 0)
    limit(resource.RLIMIT_NPROC, 0)
    limit(resource.RLIMIT_NOFILE, 3)


def renew_time():
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + SECONDS + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def watch_owner():
    """Standard error is the end of a pipe into which nothing is written: when its other end closes because our owner died,
    the signal SIGIO ends this process, whatever it is computing."""
    fcntl.fcntl(2, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_ASYNC)


def pack(parts):
    pieces, total = [], 0
    for text, literal in parts:
        data = text.encode()
        total += len(data)
        if total > OUTPUT:
            raise TooLong
        pieces += [struct.pack("<BQ", literal, len(data)), data]
    return pieces


def answer(chat, formats, command, template, name, row, variables, controls):
    if command == "find":
        return b"0", pack([(chat.find(formats, row, bool(template)), False)])
    separate, parts = chat.render(formats, template, name, row, variables, controls)
    return (b"1" if separate else b"0"), pack(parts)


def handle(chat, formats, request):
    try:
        return answer(chat, formats, *request)
    except MemoryError:
        return b"~", [f"the chat template needs more than {MEMORY >> 20} MiB of memory".encode()]
    except TooLong:
        return b"~", [f"the chat template makes a text of more than {OUTPUT >> 20} MiB".encode()]
    except Exception as error:
        refused, message = chat.describe(error)
        return (b"?" if refused else b"!"), [message.encode(errors="replace")[:MESSAGE]]


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for name in ON_DEMAND:
            importlib.import_module(name)
        import formats as chat
        import templates

        templates.strftime_now("%c %Z")  # reads the time zone
        formats = chat.load()
    except Exception as error:
        return write(b"!", [f"{type(error).__name__}: {error}".encode()])
    watch_owner()
    confine()
    write(b"0")
    while True:
        request = read_request()
        renew_time()
        reply = handle(chat, formats, request)
        write(*reply)
        if reply[0] == b"~":
            return None


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    sys.path[:0] = [str(here), str(here.parent)]
    main()
