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
import xml.etree.ElementTree as ElementTree


def require(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(each) for each in what))


def text_of(data):
    """Well-formed UTF-8 without control characters but for the line break."""
    text = data.decode("utf-8")
    require(not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), "control characters")
    return text


# ---- folded stacks: what flamegraph.pl takes -----------------------------------------------------

def folded(data):
    """[(frames, weight)]"""
    stacks = []
    for line in text_of(data).splitlines():
        match = re.fullmatch(r"(.+) (\d+)", line)
        require(match, "no stack and weight:", line)
        frames = match.group(1).split(";")
        require(all(frames), "an empty frame:", line)
        require(int(match.group(2)) > 0, "weighs nothing:", line)
        stacks.append((frames, int(match.group(2))))
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
    """Of a protocol buffers message: [(field, value)], bytes or a number."""
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
        if key & 7 == 0:
            result.append((key >> 3, varint()))
        else:
            require(key & 7 == 2, "a wire type that profile.proto has not", key & 7)
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
                sample = self.grouped(value)
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

    @staticmethod
    def grouped(data):
        groups = {}
        for field, value in fields(data):
            groups.setdefault(field, []).append(value)
        return groups

    def entries(self, message, wanted):
        """By id, which is not 0 and not given twice."""
        entries = {}
        for field, value in message:
            if field == wanted:
                entry = self.grouped(value)
                number = entry[1][0]
                require(number != 0 and number not in entries, "an id", number)
                entries[number] = entry
        return entries

    def total(self, kind):
        at = [name for name, _ in self.types].index(kind)
        return sum(values[at] for _, values, _ in self.samples)


# ---- flame graphs: XML, boxes within their parents ------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def flamegraph(data):
    """[(name, depth, share of the whole)]"""
    root = ElementTree.fromstring(data)
    require(root.tag == SVG + "svg", "no SVG")
    width = float(root.get("width"))
    height = float(root.get("height"))
    boxes = []
    for group in root.iter(SVG + "g"):
        x, share = float(group.get("data-x")), float(group.get("data-w"))
        rect = group.find(SVG + "rect")
        left, wide = float(rect.get("x")), float(rect.get("width"))
        require(0 <= left and left + wide <= width + 0.5, "outside the picture", group.get("data-name"))
        require(float(rect.get("y")) + float(rect.get("height")) <= height, "below the picture")
        require(re.fullmatch("#[0-9a-f]{6}", rect.get("fill")), "colour", rect.get("fill"))
        require(group.find(SVG + "title").text.startswith(group.get("data-name")), "title")
        boxes.append((group.get("data-name"), int(group.get("data-depth")), x, share))
    require(boxes and boxes[0][1:] == (0, 0.0, 1.0), "the whole comes first")
    by_depth = {}
    for _, depth, x, share in boxes:
        by_depth.setdefault(depth, []).append((x, x + share))
    for depth, ranges in by_depth.items():
        ranges.sort()
        for (_, end), (begin, _) in zip(ranges, ranges[1:]):
            require(begin >= end - 2e-9, "boxes overlap at depth", depth)
        for begin, end in ranges:
            require(depth == 0 or any(b - 2e-9 <= begin and end <= e + 2e-9 for b, e in by_depth[depth - 1]),
                    "a box outside its parent at depth", depth)
    require("http://" not in data.decode().replace("http://www.w3.org/2000/svg", ""), "needs the network")
    return [(name, depth, share) for name, depth, _, share in boxes]


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
    """[(thread, time, action, pointer, size, stream)], all of it text but for the size"""
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


# ---- Chrome's trace format -----------------------------------------------------------------------

class Trace:
    """counters {name: [(ts, value)]}, slices {category: [(name, begin, end, arguments)]}, instants,
    work [(process, thread, category, name, begin, duration, arguments)],
    names {("process_name" or "thread_name", process, thread): name}"""

    def __init__(self, data):
        document = json.loads(text_of(data))
        require(document["displayTimeUnit"] in ("ms", "ns"), "unit")
        self.counters, self.slices, self.instants = {}, {}, []
        self.work, self.names, ends = [], {}, {}
        names = self.names
        open_slices, latest = {}, 0.0
        for event in document["traceEvents"]:
            phase = event["ph"]
            require(isinstance(event["name"], str) and event["name"], "a name", event)
            require(isinstance(event["pid"], int) and isinstance(event["tid"], int), "ids", event)
            if phase == "M":
                require(event["name"] in ("process_name", "thread_name") and event["args"]["name"], "metadata",
                        event)
                track = (event["name"], event["pid"], event["tid"] if event["name"] == "thread_name" else 0)
                require(track not in names, "a track has two names", event)
                names[track] = event["args"]["name"]
                continue
            require(event["ts"] >= 0, "time", event)
            if phase == "C":
                require(all(isinstance(value, int) for value in event["args"].values()), "counter", event)
                self.counters.setdefault(event["name"], []).append((event["ts"], event["args"]["bytes"]))
                continue
            if phase == "i":
                require(event["s"] in ("g", "p", "t"), "scope of an instant", event)
                self.instants.append((event["cat"], event["name"], event["ts"], event.get("args")))
                continue
            if phase == "X":
                row = (event["pid"], event["tid"])
                require(event["dur"] >= 0, "duration", event)
                require(("process_name", row[0], 0) in names and ("thread_name", *row) in names, "no name", event)
                slack = 0.0015 + event["ts"] * 1e-15  # a double's
                require(ends.get(row, 0.0) <= event["ts"] + slack or row[1] % 8 == 7, "overlaps in its row", event)
                ends[row] = max(ends.get(row, 0.0), event["ts"] + event["dur"])
                self.work.append((names["process_name", row[0], 0], names["thread_name", *row], event["cat"],
                                  event["name"], event["ts"], event["dur"], event["args"]))
                continue
            require(phase in ("b", "e"), "phase", event)
            require(event["ts"] >= latest, "slices are in order of time", event)
            latest = event["ts"]
            stack = open_slices.setdefault((event["pid"], event["cat"], event["id"]), [])
            if phase == "b":
                stack.append((event["name"], event["ts"], event.get("args")))
            else:
                require(stack, "ends what has not begun", event)
                name, begin, arguments = stack.pop()
                require(name == event["name"], "ends another", event)
                self.slices.setdefault(event["cat"], []).append((name, begin, event["ts"], arguments))
        require(not any(open_slices.values()), "a slice never ends")
        for name, values in self.counters.items():
            require(all(a[0] <= b[0] for a, b in zip(values, values[1:])), "order of", name)


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


class Snapshot:
    """The unpickled snapshot, checked by replaying each trace to the state that the segments show."""

    def __init__(self, data):
        operations(data)
        self.snapshot = pickle.loads(data)
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
