"""Checks of what memlab-report export writes, each by the rules of the program that reads it.

A check takes the bytes of an export, raises AssertionError when a rule is broken, and returns what
it read, so that a test can go on with the figures.
"""

import csv as csv_reader
import gzip
import io
import json
import pickle
import pickletools
import re
import struct


def require(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(each) for each in what))


def text_of(data):
    """Well-formed UTF-8 without control characters except the line break."""
    text = data.decode("utf-8")
    require(not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), "control characters")
    return text


# ---- folded stacks: what flamegraph.pl takes -----------------------------------------------------

def folded(data, weights=1):
    """[(frames, weight)]; of two weights, as difffolded.pl writes them, [(frames, (before, after))]"""
    stacks = []
    for line in text_of(data).splitlines():
        match = re.fullmatch(r"(.+?)((?: \d+){%d})" % weights, line)
        require(match, "no stack and weight:", line)
        frames = match.group(1).split(";")
        require(all(frames), "an empty frame:", line)
        figures = tuple(int(figure) for figure in match.group(2).split())
        require(any(figures), "weighs nothing:", line)
        stacks.append((frames, figures if weights > 1 else figures[0]))
    return stacks


# ---- speedscope: the rules of its file-format-schema.json -----------------------------------------

def speedscope(data):
    """(frames, [(stack, weight)])"""
    document = json.loads(text_of(data))
    require(document["$schema"] == "https://www.speedscope.app/file-format-schema.json", "schema")
    require(isinstance(document["exporter"], str) and isinstance(document["name"], str), "names")
    require(0 <= document["activeProfileIndex"] < len(document["profiles"]), "active profile")
    frames = document["shared"]["frames"]
    for frame in frames:
        require(set(frame) <= {"name", "file", "line", "col"}, "a frame's members", frame)
        require(isinstance(frame["name"], str) and frame["name"], "a frame without a name")
        require(isinstance(frame.get("file", ""), str), "file", frame)
        require(isinstance(frame.get("line", 1), int) and frame.get("line", 1) > 0, "line", frame)
    stacks = []
    for profile in document["profiles"]:
        require(profile["type"] == "sampled", "type")
        require(profile["unit"] in ("bytes", "none"), "unit", profile["unit"])
        require(isinstance(profile["name"], str), "name")
        require(len(profile["samples"]) == len(profile["weights"]), "a weight for each sample")
        for stack, weight in zip(profile["samples"], profile["weights"]):
            require(stack and all(0 <= frame < len(frames) for frame in stack), "stack", stack)
            require(weight > 0, "weighs nothing")
            stacks.append((stack, weight))
        require(profile["startValue"] == 0, "start")
        require(profile["endValue"] == min(sum(profile["weights"]), 2**64 - 1), "end")
    return [frame["name"] for frame in frames], stacks


# ---- pprof: profile.proto, and what profile.CheckValid of google/pprof demands --------------------

def fields(data):
    """Of a protocol buffers message: [(field, value)], bytes, a number, or a float of 64 bits."""
    result, at = [], 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                require(value < 2**64, "a number of more than 64 bits")
                return value

    while at < len(data):
        key = varint()
        require(key >> 3 != 0, "field 0")
        if key & 7 == 0:
            result.append((key >> 3, varint()))
        elif key & 7 == 1:
            require(at + 8 <= len(data), "a number that is cut off")
            result.append((key >> 3, struct.unpack_from("<d", data, at)[0]))
            at += 8
        else:
            require(key & 7 == 2, "a wire type that is not written", key & 7)
            size = varint()
            require(at + size <= len(data), "a message that is cut off")
            result.append((key >> 3, data[at:at + size]))
            at += size
    return result


def packed(data):
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value, shift = 0, 0
    require(shift == 0, "a number that is cut off")
    return values


def grouped(data):
    """Of a message: {field: [value]}"""
    groups = {}
    for field, value in fields(data):
        groups.setdefault(field, []).append(value)
    return groups


class Profile:
    """types, samples [(names leaf first, values, labels)], and the type that is shown."""

    def __init__(self, data):
        message = fields(gzip.decompress(data))
        self.strings = [value.decode("utf-8") for field, value in message if field == 6]
        require(self.strings and self.strings[0] == "", "string 0 is not empty")
        require(len(set(self.strings)) == len(self.strings), "a string twice")
        self.types = [self.value_type(value) for field, value in message if field == 1]
        functions = self.entries(message, 5)
        locations = self.entries(message, 4)
        mappings = self.entries(message, 3)
        for function in functions.values():
            for text in (2, 3, 4):
                self.string(function.get(text, [0])[0])
        self.mappings = [self.string(mapping[5][0]) for mapping in mappings.values()]
        names = {}
        for number, location in locations.items():
            mapping = location.get(2, [0])[0]
            require(mapping == 0 or mapping in mappings, "no mapping", mapping)
            lines = [dict(fields(line)) for line in location[4]]
            require(len(lines) == 1 and lines[0][1] in functions, "a line's function")
            require(lines[0].get(2, 0) < 2**63, "a line's number")
            names[number] = self.string(functions[lines[0][1]][2][0])
        self.samples = []
        for field, value in message:
            if field == 2:
                sample = grouped(value)
                values = packed(sample[2][0])
                require(len(values) == len(self.types), "a value for each type", values)
                require(all(value < 2**63 for value in values), "negative values", values)
                stack = packed(sample[1][0])
                require(stack and all(number in names for number in stack), "locations", stack)
                labels = {}
                for label in sample.get(3, []):
                    of = dict(fields(label))
                    require((2 in of) != (3 in of), "a label is text or a number")
                    labels[self.string(of[1])] = self.string(of[2]) if 2 in of else of[3]
                self.samples.append(([names[number] for number in stack], values, labels))
        numbers = dict((field, value) for field, value in message if isinstance(value, int))
        self.shown = self.string(numbers[14])
        require(self.shown in [kind for kind, _ in self.types], "the default sample type")
        require(self.value_type([v for f, v in message if f == 11][0]) == ("space", "bytes"), "period")
        self.comments = [self.string(value) for field, value in message if field == 13]

    def string(self, number):
        require(number < len(self.strings), "no string", number)
        return self.strings[number]

    def value_type(self, data):
        kind = dict(fields(data))
        return self.string(kind[1]), self.string(kind[2])

    def entries(self, message, wanted):
        """By id, which is not 0 and not given twice."""
        entries = {}
        for field, value in message:
            if field == wanted:
                entry = grouped(value)
                number = entry[1][0]
                require(number != 0 and number not in entries, "an id", number)
                entries[number] = entry
        return entries

    def total(self, kind):
        at = [name for name, _ in self.types].index(kind)
        return sum(values[at] for _, values, _ in self.samples)


# ---- metrics: OpenMetrics, and the older text format of the textfile collector --------------------

METRIC = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')


def openmetrics(data):
    """{(name, ((label, value), ...)): value}"""
    text = text_of(data)
    require(text.endswith("\n# EOF\n"), "no end")
    metrics, family, done, seen = {}, None, set(), []
    for line in text.splitlines()[:-1]:
        if line.startswith("# "):
            word, name = line.split(" ")[1:3]
            require(word in ("HELP", "TYPE", "UNIT"), "a comment", line)
            if name != family:
                require(name not in done, "a family in two places", name)
                family, seen = name, []
                done.add(name)
            require(word not in seen, "twice", line)
            seen.append(word)
            if word == "TYPE":
                require(line.endswith(" gauge"), "type", line)
            if word == "UNIT":
                require(name.endswith("_" + line.split(" ")[3]), "a unit that is not the name's end", line)
            continue
        match = METRIC.fullmatch(line)
        require(match, "no metric:", line)
        require(match.group(1) == family and "TYPE" in seen, "outside its family:", line)
        labels = tuple(LABEL.findall(match.group(2)))
        require(len(dict(labels)) == len(labels), "a label twice:", line)
        require((family, labels) not in metrics, "a metric twice:", line)
        metrics[(family, labels)] = float(match.group(3))
    return metrics


# ---- RMM's log: what its replay benchmark and scripts take ---------------------------------------

def csv(data):
    """[(thread, time, action, pointer, size, stream)], all of it text except the size"""
    text = text_of(data)
    require(text.startswith("Thread,Time,Action,Pointer,Size,Stream\n"), "the names of the columns")
    rows = list(csv_reader.reader(io.StringIO(text)))[1:]
    live = {}
    for row in rows:
        require(len(row) == 6, "columns", row)
        thread, time, action, pointer, size, stream = row
        require(re.fullmatch(r"\d+", thread) and re.fullmatch(r"\d+", size), "numbers", row)
        require(re.fullmatch(r"[0-2]\d:[0-5]\d:[0-5]\d\.\d{6}", time), "time", row)
        require(re.fullmatch(r"0|0x[0-9a-f]+", stream), "stream", row)
        require(action in ("allocate", "free", "allocate failure"), "action", row)
        if action == "allocate failure":
            require(pointer == "(nil)", "a failure has no pointer", row)
            continue
        require(re.fullmatch(r"0x[0-9a-f]+", pointer), "pointer", row)
        if action == "allocate":
            require(pointer not in live, "allocated twice", row)
            live[pointer] = size
        else:
            require(live.pop(pointer, None) == size, "freed, and not of that size", row)
    return [(*row[:4], int(row[4]), row[5]) for row in rows]


# ---- Perfetto: the packets of protos/perfetto/trace/, read as its trace_processor reads them -------

REALTIME, BOOTTIME, INCREMENTAL = 1, 6, 64
STATE_CLEARED, NEEDS_STATE = 1, 2
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
# Of InternedData: the fields that are (number, text) each.
INTERNED_TEXTS = {1: "category", 2: "name", 3: "argument", 5: "function", 18: "file", 29: "text"}


class Track:
    """uuid, name, parent (a Track or None), kind ("process", "thread", "counter", "slices"), pid, tid, labels"""

    def __init__(self, descriptor):
        of = grouped(descriptor)
        require(set(of) <= {1, 2, 3, 4, 5, 8}, "fields of a track", set(of))
        require(all(len(values) == 1 for values in of.values()), "a field twice")
        self.uuid, self.parent_uuid = of[1][0], of.get(5, [0])[0]
        require(self.uuid != 0 and self.parent_uuid != self.uuid, "uuid")
        self.name, self.pid, self.tid, self.labels, self.parent = "", None, None, [], None
        if 3 in of:
            process = grouped(of[3][0])
            self.kind, self.pid = "process", process[1][0]
            self.name = clean(process[6][0])
            self.labels = [clean(label) for label in process.get(8, [])]
        elif 4 in of:
            thread = grouped(of[4][0])
            self.kind, self.pid, self.tid = "thread", thread[1][0], thread[2][0]
            require(self.tid < 2**63, "a thread's number")
            self.name = clean(thread.get(5, [b""])[0])
        else:
            self.kind = "counter" if 8 in of else "slices"
            require(8 not in of or fields(of[8][0]) == [(3, 3)], "a counter that is not of bytes")
            self.name = clean(of[2][0])
            require(self.name and self.parent_uuid, "a name and a parent")
        require(self.pid is None or 0 < self.pid < 2**31, "a process id of 31 bits", self.pid)
        require(self.kind in ("counter", "slices") or (not self.parent_uuid and 2 not in of), "a root's parent")
        self.open, self.latest, self.values, self.slices, self.instants = [], 0, [], [], []

    def root(self):
        return self if self.parent is None else self.parent.root()


def clean(data):
    text = data.decode("utf-8")
    require(not re.search(r"[\x00-\x1f\x7f-\x9f]", text), "control characters", repr(text))
    return text


class Sequence:
    """What packets of one sequence have told: texts, frames, call stacks, and the time of the latest."""

    def __init__(self):
        self.texts = {kind: {} for kind in INTERNED_TEXTS.values()}
        self.frames, self.callstacks, self.clock, self.usual_counters = {}, {}, None, []

    def learn(self, data):
        for field, value in fields(data):
            of = grouped(value)
            number = of[1][0]
            if field in INTERNED_TEXTS:
                known, new = self.texts[INTERNED_TEXTS[field]], clean(of[2][0])
            elif field == 6:
                require(set(of) <= {1, 2, 5, 6}, "fields of a frame", set(of))
                known = self.frames
                new = (self.texts["function"][of[2][0]], self.texts["file"][of[5][0]] if 5 in of else "",
                       of.get(6, [0])[0])
            else:
                require(field == 7, "interned data", field)
                known = self.callstacks
                require(of[2], "an empty stack")
                new = [self.frames[frame] for frame in of[2]]
            require(number not in known and number != 0, "a number twice", number)
            require(len(known) > 100 or new not in known.values(), "twice", new)
            known[number] = new


class Trace:
    """Times are microseconds. counters {name: [(ts, value)]}, slices {category: [(name, begin, end,
    arguments)]}, instants [(category, name, ts, arguments)], work [(process, thread, category, name, begin,
    duration, arguments)], names {("process_name" or "thread_name", process, thread): name}, processes
    [Track], tracks [Track]: each with its slices [(category, name, begin_ns, end_ns, arguments)], instants
    and values of its own; wall_ns: the trace's time 0. Arguments have "stack", the frames (function, file,
    line) from the outermost on, and "weight", where there is a call stack."""

    def __init__(self, data):
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        self.tracks, self.sequences, self.wall_ns = {}, {}, None
        for number, (field, packet) in enumerate(fields(data)):
            require(field == 1, "a field of Trace", field)
            self.packet(number, grouped(packet))
        self.tracks = list(self.tracks.values())
        self.processes = [track for track in self.tracks if track.kind == "process"]
        self.counters, self.slices, self.instants, self.work, self.names = {}, {}, [], [], {}
        for track in self.tracks:
            self.finish(track)
        self.instants.sort(key=lambda instant: instant[2])

    def packet(self, number, packet):
        require(all(len(values) == 1 for values in packet.values()), "a field twice", packet)
        sequence_id = packet.get(10, [0])[0]
        flags = packet.get(13, [0])[0]
        if number == 0:
            require(set(packet) == {6}, "the trace's clock comes first")
            clocks = self.clocks(packet[6][0], main=BOOTTIME)
            require(set(clocks) <= {BOOTTIME, REALTIME} and clocks[BOOTTIME] == 0, "clocks", clocks)
            self.wall_ns = clocks.get(REALTIME)
            return
        require(0 < sequence_id < 2**32, "no sequence")
        if flags == STATE_CLEARED:
            require(sequence_id not in self.sequences, "a sequence twice")
            require(self.clocks(packet[6][0]) == {INCREMENTAL: 0, BOOTTIME: 0}, "clocks of the sequence")
            require(fields(packet[59][0]) == [(58, INCREMENTAL)], "defaults")
            self.sequences[sequence_id] = Sequence()
            self.sequences[sequence_id].clock = 0
            return
        sequence = self.sequences[sequence_id]
        if 59 in packet:
            require(set(packet) == {10, 59}, "defaults and nothing else", set(packet))
            (clock, of_events) = fields(packet[59][0])
            require(clock == (58, INCREMENTAL) and of_events[0] == 11, "defaults")
            require({field for field, _ in fields(of_events[1])} == {31}, "defaults of events")
            sequence.usual_counters = [track for _, track in fields(of_events[1])]
            return
        if 60 in packet:
            require(set(packet) == {10, 60}, "a track and nothing else", set(packet))
            track = Track(packet[60][0])
            require(track.uuid not in self.tracks, "a track twice")
            if track.parent_uuid:
                track.parent = self.tracks[track.parent_uuid]
                require(track.parent.kind != "counter", "below a counter")
            if track.kind == "process":
                require(track.pid not in [each.pid for each in self.tracks.values() if each.kind == "process"],
                        "two processes of one number")
            self.tracks[track.uuid] = track
            return
        require(set(packet) <= {8, 10, 11, 12, 13, 58} and flags == NEEDS_STATE, "an event's packet", set(packet))
        if 12 in packet:
            sequence.learn(packet[12][0])
        if 58 in packet:
            require(packet[58][0] == BOOTTIME, "clock")
            time = packet[8][0]
        else:
            sequence.clock += packet[8][0]
            time = sequence.clock
        require(time < 2**63, "time")
        self.event(sequence, time, grouped(packet[11][0]))

    @staticmethod
    def clocks(data, main=None):
        of = grouped(data)
        require(of.get(2) == ([main] if main else None), "the trace's clock")
        clocks = {}
        for each in of[1]:
            clock = grouped(each)
            require((clock.get(3) == [1]) == (clock[1] == [INCREMENTAL]), "which clock is incremental")
            clocks[clock[1][0]] = clock[2][0]
        return clocks

    def event(self, sequence, time, event):
        require(set(event) <= {3, 4, 9, 10, 11, 12, 30, 31, 56, 57}, "fields of an event", set(event))
        kind, track = event[9][0], self.tracks[event[11][0]]
        require(track.kind in ("counter", "slices"), "an event of", track.kind)
        require((kind == COUNTER) == (track.kind == "counter"), "type", kind)
        beside, values = event.get(31) or sequence.usual_counters, event.get(12, [])
        require(len(values) <= min(len(beside), 8) and (31 not in event or len(beside) == len(values)),
                "counters beside an event")
        counters = list(zip(beside, values))
        if kind == COUNTER:
            require(set(event) == {9, 11, 30}, "a counter's event")
            counters = [(track.uuid, event[30][0])]
        for uuid, value in counters:
            counter = self.tracks[uuid]
            require(counter.kind == "counter" and value < 2**63, "a counter's value", value)
            counter.values.append((time, value))
        if kind == COUNTER:
            return
        arguments = {}
        for each in event.get(4, []):
            of = grouped(each)
            (form,) = set(of) - {1}
            require(form in (3, 7, 17), "an argument's value")
            name = sequence.texts["argument"][of[1][0]]
            require(name not in arguments, "an argument twice")
            arguments[name] = sequence.texts["text"][of[17][0]] if form == 17 else \
                hex(of[7][0]) if form == 7 else of[3][0]
        if 56 in event:
            arguments["stack"], arguments["weight"] = sequence.callstacks[event[56][0]], event[57][0]
        if kind == END:
            require(set(event) <= {9, 11, 12, 31}, "an end has nothing of its own")
            # In the order of time, which packets of the past are not.
            track.slices.append((END, time, None, None, None))
            return
        category, name = sequence.texts["category"][event[3][0]], sequence.texts["name"][event[10][0]]
        require(kind in (BEGIN, INSTANT) and name, "type", kind)
        if kind == INSTANT:
            track.instants.append((category, name, time / 1000, arguments or None))
        else:
            track.slices.append((BEGIN, time, category, name, arguments or None))

    def finish(self, track):
        root = track.root()
        if track.kind == "process":
            self.names["process_name", track.pid, 0] = track.name
        elif track.kind == "thread":
            require(("process_name", track.pid, 0) in self.names, "a thread of no process")
            if track.name:
                self.names["thread_name", track.pid, track.tid] = track.name
        values = [(time / 1000, value) for time, value in track.values]
        require(all(a[0] <= b[0] for a, b in zip(values, values[1:])), "order of", track.name)
        if values:
            self.counters.setdefault(track.name, []).extend(values)
        self.instants += track.instants
        events, open_slices, track.slices = sorted(track.slices, key=lambda event: event[1]), [], []
        for what, time, category, name, arguments in events:
            if what == BEGIN:
                open_slices.append((category, name, time, arguments))
                continue
            require(open_slices, "ends what has not begun", track.name)
            category, name, begin, arguments = open_slices.pop()
            require(not open_slices or category == "scope", "slices in slices", name)
            track.slices.append((category, name, begin, time, arguments))
            if category in ("kernel", "copy", "fill"):
                self.work.append((track.parent.name, track.name, category, name, begin / 1000,
                                  (time - begin) / 1000, arguments))
            else:
                if category == "allocation":
                    require(track.parent.name.endswith(" allocations") and track.parent.parent is root, "whose")
                    require(track.name == name, "a place of another name", track.name, name)
                    require(float(arguments.get("weight", arguments["bytes"])) == float(arguments["bytes"]), "weight")
                self.slices.setdefault(category, []).append((name, begin / 1000, time / 1000, arguments))
        require(not open_slices, "a slice never ends", open_slices)


# ---- PyTorch's snapshot: what torch.cuda._memory_viz and the memory_viz page take ----------------

# The operations that the page's own reader of pickles knows.
PAGE_OPERATIONS = {
    "APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "EMPTY_DICT", "EMPTY_LIST", "FRAME", "LONG1",
    "LONG_BINGET", "MARK", "MEMOIZE", "PROTO", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE2", "APPEND",
    "NEWFALSE", "BINPUT", "BINUNICODE", "EMPTY_TUPLE", "NEWTRUE", "NONE", "BINFLOAT", "TUPLE", "TUPLE1",
    "TUPLE3", "LONG_BINPUT", "SETITEM"}
STATES = ("active_allocated", "active_pending_free", "inactive")


def operations(data):
    """Only what the page knows, of protocol 2 to 4, and no list in pieces of more than 1000."""
    depths, count = [], 0
    for operation, argument, _ in pickletools.genops(data):
        require(operation.name in PAGE_OPERATIONS, "the page knows no", operation.name)
        if operation.name == "PROTO":
            require(2 <= argument <= 4, "protocol", argument)
        if operation.name == "MARK":
            depths.append(count)
            count = 0
        elif operation.name in ("APPENDS", "SETITEMS", "TUPLE"):
            if operation.name == "APPENDS":
                require(count <= 1000, "a batch of", count)
            count = depths.pop()
        elif operation.name == "TUPLE2":
            count -= 1
        elif operation.name not in ("PROTO", "FRAME", "STOP", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            count += 1


def unpickled(data):
    operations(data)
    return pickle.loads(data)


class Snapshot:
    """The unpickled snapshot, checked by replaying each trace to the state that the segments show."""

    def __init__(self, data):
        self.snapshot = unpickled(data)
        require(set(self.snapshot) == {"segments", "device_traces", "allocator_settings"}, "members")
        self.peak_allocated, self.peak_reserved = [], []
        final = {}
        for segment in self.snapshot["segments"]:
            self.segment(segment)
            final.setdefault(segment["device"], []).append(segment)
        require(all(device < len(self.snapshot["device_traces"]) for device in final), "devices")
        for device, trace in enumerate(self.snapshot["device_traces"]):
            self.replay(trace, final.get(device, []))

    @staticmethod
    def frames(frames):
        for frame in frames:
            require(set(frame) == {"name", "filename", "line"}, "a frame's members", frame)
            require(isinstance(frame["name"], str) and isinstance(frame["filename"], str), "names", frame)
            require(isinstance(frame["line"], int), "line", frame)

    def segment(self, segment):
        require(set(segment) >= {"device", "address", "total_size", "allocated_size", "active_size",
                                 "requested_size", "stream", "segment_type", "segment_pool_id",
                                 "is_expandable", "frames", "blocks"}, "a segment's members")
        require(segment["segment_type"] in ("small", "large"), "type")
        require(segment["segment_pool_id"] == (0, 0) and isinstance(segment["is_expandable"], bool), "pool")
        self.frames(segment["frames"])
        sums = {state: 0 for state in STATES}
        address, requested, before = segment["address"], 0, None
        for block in segment["blocks"]:
            require(block["address"] == address, "blocks follow one another")
            require(block["state"] in STATES and block["size"] > 0, "block", block)
            require(block["requested_size"] <= block["size"], "requested more than there is", block)
            require(not (before == block["state"] == "inactive"), "two free blocks side by side")
            self.frames(block["frames"])
            sums[block["state"]] += block["size"]
            requested += block["requested_size"] if block["state"] == "active_allocated" else 0
            address += block["size"]
            before = block["state"]
        require(sum(sums.values()) == segment["total_size"], "blocks do not add up to their segment")
        require(sums["active_allocated"] == segment["allocated_size"], "allocated_size")
        require(segment["total_size"] - sums["inactive"] == segment["active_size"], "active_size")
        require(requested == segment["requested_size"], "requested_size")

    def replay(self, trace, final):
        segments, blocks = {}, {}  # address: size; address: (size, pending)
        reserved = allocated = peak_reserved = peak_allocated = latest = 0

        def inside(address, size):
            return any(begin <= address and address + size <= begin + length
                       for begin, length in segments.items())

        for entry in trace:
            action, size = entry["action"], entry["size"]
            self.frames(entry["frames"])
            require(entry["time_us"] >= latest, "order of time", entry)
            latest = entry["time_us"]
            require(isinstance(entry["stream"], int), "stream")
            if action == "oom":
                require("device_free" in entry, "oom")
                continue
            address = entry["addr"]
            require(address + size < 2**53, "no whole number in JavaScript", entry)
            if action in ("segment_alloc", "segment_map"):
                require(size > 0, "an empty segment")
                require(all(begin + length <= address or address + size <= begin
                            for begin, length in segments.items()), "segments overlap", entry)
                if action == "segment_map":
                    for begin in sorted(segments):  # neighbours join, as the page joins them
                        if begin + segments[begin] == address:
                            address, size = begin, segments.pop(begin) + size
                    size += segments.pop(address + size, 0)
                segments[address] = size
                reserved += entry["size"]
            elif action == "segment_free":
                require(segments.pop(address, None) == size, "frees no segment", entry)
                require(not any(address <= block < address + size for block in blocks), "blocks in it", entry)
                reserved -= size
            elif action == "segment_unmap":
                begin = max((each for each in segments if each <= address), default=None)
                require(begin is not None and address + size <= begin + segments[begin], "unmaps nothing", entry)
                require(not any(address <= block < address + size for block in blocks), "blocks in it", entry)
                length = segments.pop(begin)
                if begin < address:
                    segments[begin] = address - begin
                if address + size < begin + length:
                    segments[address + size] = begin + length - address - size
                reserved -= size
            elif action == "alloc":
                require(address not in blocks, "allocated twice", entry)
                require(inside(address, max(size, 1)), "outside of all segments", entry)
                blocks[address] = (size, False)
                allocated += size
            elif action == "free_requested":
                require(blocks.get(address) == (size, False), "frees what does not live", entry)
                blocks[address] = (size, True)
                allocated -= size
            elif action == "free_completed":
                require(blocks.pop(address, None) == (size, True), "completes what was not freed", entry)
            else:
                require(False, "action", action)
            peak_reserved = max(peak_reserved, reserved)
            peak_allocated = max(peak_allocated, allocated)
        require(segments == {segment["address"]: segment["total_size"] for segment in final},
                "the trace does not end in the segments")
        shown = {block["address"]: (block["requested_size"], block["state"] == "active_pending_free")
                 for segment in final for block in segment["blocks"] if block["state"] != "inactive"}
        require(blocks == shown, "the trace does not end in the blocks")
        self.peak_reserved.append(peak_reserved)
        self.peak_allocated.append(peak_allocated)
