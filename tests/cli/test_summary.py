#!/usr/bin/env python3
"""memlab-report and memlab-run as a user meets them: command lines, files, exit codes, terminals.

Run by ctest with the folder of the programs in MEMLAB_BIN and the source folder in MEMLAB_SOURCE.
"""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = os.environ["MEMLAB_BIN"]
SOURCE = os.environ["MEMLAB_SOURCE"]
REPORT = os.path.join(BIN, "memlab-report")
RUN = os.path.join(BIN, "memlab-run")
SYNTH = os.path.join(BIN, "memlab-synth")


def line_of(function):
    """The line in the generator's source on which `function` allocates."""
    with open(os.path.join(SOURCE, "tests/cli/memlab_synth.cpp"), encoding="utf-8") as source:
        for number, text in enumerate(source, 1):
            if "// line: " + function in text:
                return number
    raise AssertionError("no line of " + function)


class ToolTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="memlab-cli.")
        self.addCleanup(self.folder.cleanup)
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("MEMLAB_", "LC_"))
            and key not in ("LD_PRELOAD", "NO_COLOR", "COLUMNS", "LANG", "DEBUGINFOD_URLS")
        }
        self.environment.update(LANG="C.UTF-8", TZ="UTC", TERM="xterm")
        # In a sanitizer build the tools find another library preloaded before the runtime.
        asan = self.environment.get("ASAN_OPTIONS", "")
        self.environment["ASAN_OPTIONS"] = asan + ":verify_asan_link_order=0"

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def log(self, scenario, name=None):
        path = self.path(name or scenario + ".memlog")
        subprocess.run([SYNTH, scenario, path], check=True)
        return path

    def without_log(self, report):
        """A copy of a report that has no event log beside it."""
        return shutil.copy(report, self.folder.name)

    def call(self, *command, **environment):
        return subprocess.run(
            command, cwd=self.folder.name,
            env={**self.environment, "COLUMNS": "80", **environment}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False)

    def report(self, *arguments, **environment):
        result = self.call(REPORT, *arguments, **environment)
        self.assertEqual(result.stderr, "")
        self.assertEqual(result.returncode, 0)
        return result.stdout

    def readable(self, path):
        """False for what the reader of reports refuses, as it may a log of random numbers."""
        return self.call(REPORT, "--json", "--no-symbols", path).returncode == 0

    def on_terminal(self, *command, columns=100, **environment):
        """Runs it with a terminal as its standard output; what the terminal got."""
        leader, follower = pty.openpty()
        subprocess.run(["stty", "cols", str(columns), "rows", "40"], stdin=follower, check=True)
        process = subprocess.Popen(command, stdout=follower, stderr=follower, stdin=follower,
                                   cwd=self.folder.name, env={**self.environment, **environment})
        os.close(follower)
        output = b""
        while True:
            try:
                got = os.read(leader, 65536)
            except OSError:  # the last follower was closed
                break
            if not got:
                break
            output += got
        os.close(leader)
        self.assertEqual(process.wait(60), 0)
        return output.decode().replace("\r\n", "\n")


class Report(ToolTest):
    def test_the_seeds_four_lines(self):
        text = self.report(self.log("cache"))
        self.assertRegex(text, r"(?m)^  allocated +3\.81 MiB +100\.00 ms +0 B")
        self.assertRegex(text, r"(?m)^  reserved +20\.00 MiB +100\.00 ms +0 B")
        self.assertRegex(text, r"1 +0 ns +0\.00 MiB +0\.00 MiB +0\.00 MiB  start")
        self.assertRegex(text, r"2 +200\.00 ms +3\.81 MiB +20\.00 MiB +3\.81 MiB  x = tensor")
        self.assertRegex(text, r"3 +400\.00 ms +0\.00 MiB +20\.00 MiB +0\.00 MiB  del x")
        self.assertRegex(text, r"4 +600\.00 ms +0\.00 MiB +0\.00 MiB +0\.00 MiB  empty_cache\(\)")
        self.assertIn("Still allocated at the end\n  nothing\n", text)
        self.assertIn("ended normally after 1.000 s", text)

    def test_sites_have_function_file_and_line(self):
        text = self.report(self.log("leak"))
        for function, row in (("forward_pass", r"12\.00 MiB +75\.9% +2"),
                              ("load_batch", r"3\.81 MiB +24\.1% +1")):
            place = r"tests/cli/memlab_synth\.cpp:%d  %s" % (line_of(function), function)
            self.assertRegex(text, row + "  " + place)
        self.assertRegex(text, r"Still allocated at the end: 8\.81 MiB  3 allocations")
        self.assertRegex(text, r"pinned +1 +1\.00 MiB +1\.00 MiB +1\.00 MiB  host")
        self.assertRegex(text, r"device used +520\.00 MiB")

    def test_stacks_are_shown_when_asked_for(self):
        log = self.log("leak")
        self.assertNotIn("Stack of", self.report(log))
        text = self.report("--stacks", "1", log)
        self.assertEqual(text.count("Stack of"), 1)
        self.assertRegex(text, r"(?m)^    libcudart\.so\.13\+0x20  \(file not found\)$")
        self.assertRegex(text, r"(?m)^  > forward_pass  tests/cli/memlab_synth\.cpp:%d$"
                         % line_of("forward_pass"))
        self.assertIn("deeper than MEMLAB_STACK_DEPTH", text)
        self.assertEqual(self.report("--stacks", "9", log).count("Stack of"), 2)

    def test_top_bounds_the_tables(self):
        text = self.report("--top", "1", self.log("leak"))
        self.assertIn("forward_pass", text)
        self.assertRegex(text, r"3\.81 MiB +24\.1% +1  1 place more")

    def test_places_by_their_allocations(self):
        path = os.path.join(SOURCE, "tests/data/h100/pytorch_without_its_cache.json")

        def live(*arguments):
            text = self.report("--json", "--no-symbols", *arguments, path)
            places = json.loads(text)["reports"][0]["devices"][0]["live"]["places"]
            return [(place["bytes"], place["count"]) for place in places]

        self.assertEqual([count for _, count in live()], [3, 4])
        self.assertEqual(live("--sort", "count"), live()[::-1])
        self.assertIn("takes bytes or count, not peak", self.call(REPORT, "--sort", "peak", path).stderr)

    def test_no_symbols_looks_nothing_up(self):
        text = self.report("--no-symbols", self.log("leak"))
        self.assertNotIn("forward_pass", text)
        self.assertRegex(text, r"memlab-synth\+0x[0-9a-f]+")

    def test_another_binary_is_never_named_wrongly(self):
        text = self.report(self.log("stale"))
        self.assertNotIn("forward_pass", text)
        self.assertRegex(text, r"memlab-synth\+0x[0-9a-f]+")
        self.assertIn("is not the binary that ran", " ".join(text.split()))

    def test_out_of_memory_is_explained(self):
        text = self.report(self.log("oom"))
        self.assertIn("Out of memory: 1 allocation failed", text)
        words = " ".join(text.split())
        self.assertIn("cuMemAlloc_v2 of 58.59 GiB on GPU 0 at", words)
        self.assertIn("The device has 78.12 GiB, 48.83 GiB of it free.", words)
        self.assertIn("16.19 MiB reserved but unallocated", words)
        self.assertIn("It is short by 9.75 GiB", words)
        self.assertIn("X out of memory", text)

    def test_trouble_is_said(self):
        text = self.report(self.log("trouble"))
        words = " ".join(text.split())
        self.assertIn("was cut off after at least 70.00 ms", words)
        self.assertIn("CUDA was in use before memlab saw it", words)
        self.assertIn("stops without an end", words)
        self.assertIn("allocations are not seen (2 times, 3.00 MiB).", words)
        self.assertIn("1 free of memory whose allocation was not seen", words)
        self.assertNotIn("\x1b", text)

    def test_devices(self):
        log = self.log("two_gpus")
        both = self.report(log)
        self.assertIn("GPU 0: NVIDIA", both)
        self.assertIn("GPU 1: NVIDIA", both)
        one = self.report("--device", "1", log)
        self.assertNotIn("GPU 0: NVIDIA", one)
        self.assertIn("GPU 1: NVIDIA", one)
        result = self.call(REPORT, "--device", "7", log)
        self.assertEqual(result.returncode, 2)
        self.assertIn("GPU 7 was not used; omit --device", result.stderr)

    def test_nothing_allocated(self):
        self.assertIn("No GPU memory was allocated.", self.report(self.log("empty")))

    def test_next_commands_exist_and_work(self):
        log = self.log("leak")
        text = self.report(log)
        commands = re.findall(r"(?m)^  (memlab-report .*?)(?:   |$)", text.split("\nNext\n")[1])
        self.assertGreaterEqual(len(commands), 2)
        for command in commands:
            shell = self.call("sh", "-c", command, PATH=BIN + ":" + os.environ["PATH"])
            self.assertEqual((shell.returncode, shell.stderr), (0, ""))

    def test_commands_can_be_pasted_whatever_the_file_is_called(self):
        for name in ("two words'.memlog", "new\nline\t'\\.memlog", "-json.memlog", "\x1b[31m\u202e.memlog", "é.memlog"):
            log = self.log("leak", name)
            for style in ([], ["--ascii"]):
                with self.subTest(name=name, style=style):
                    text = self.report(*style, "./" + name if name.startswith("-") else name)
                    command = re.search(r"(?m)^  (memlab-report --json .*?)(?:   |$)", text).group(1)
                    self.assertTrue(command.isprintable() and (command.isascii() or not style), command)
                    shell = self.call("bash", "-c", command, PATH=BIN + ":" + os.environ["PATH"], LC_ALL="C.UTF-8")
                    found = json.loads(shell.stdout)["reports"][0]["file"]
                    self.assertEqual(os.path.basename(found), os.path.basename(log))
            said = self.call(REPORT, "recover", "./" + name, "-o", "./" + name[:-7] + ".json").stdout
            shell = self.call("bash", "-c", said.split("Next: ")[1].strip(), PATH=BIN + ":" + os.environ["PATH"])
            self.assertEqual((shell.returncode, shell.stderr), (0, ""))

    def test_several_files_and_a_bad_one(self):
        bad = self.path("bad.json")
        with open(bad, "w", encoding="utf-8") as file:
            file.write('{"format": "memlab-report", "version": 9}')
        result = self.call(REPORT, self.log("leak"), bad, self.log("cache"))
        self.assertEqual(result.returncode, 2)
        self.assertEqual(
            result.stderr,
            "memlab-report: " + bad + ": has format version 9, this memlab-report reads version 1; "
            "use the memlab-report of the memlab that recorded it\n")
        self.assertEqual(re.findall(r"(?m)^==> .*/(\w+)\.memlog <==$", result.stdout),
                         ["leak", "cache"])

    def test_wrong_usage(self):
        for arguments, expected in (
                ([], "no recording (memlab.*.json, *.memlog) in this folder; name one"),
                (["--bogus", "x"], "--bogus"),
                (["--color", "maybe", "x"], "takes auto, always or never, not maybe"),
                (["--top", "0", "x"], "takes a number from 1 on"),
                (["--top", "many", "x"], "many"),
                (["--device", "-1", "x"], "takes a whole number, not -1"),
                (["--stacks", "1e9", "x"], "takes a whole number, not 1e9"),
                (["missing.json"], "missing.json: no such file; check the name"),
                (["."], ".: holds no report and no event log of memlab"),
                ([".", "missing.json"], ".: holds no report and no event log of memlab"),
                ([SYNTH], "neither a memlab report nor an event log")):
            result = self.call(REPORT, *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(result.stdout, "")
            self.assertTrue(result.stderr.startswith("memlab-report: "))
            self.assertIn(expected, result.stderr)
            self.assertEqual(result.stderr.count("\n"), max(1, arguments.count("missing.json")
                                                           + arguments.count(".")), result.stderr)

    def test_help_and_version(self):
        text = self.report("--help")
        self.assertIn("Examples:", text)
        commands = re.findall(r"^  ([a-z][a-z-]*) +[A-Z]", text, re.MULTILINE)
        self.assertIn("diff", commands)
        for command in [[], *([name] for name in commands)]:
            with self.subTest(command=command):
                text = self.report(*command, "--help")
                # No wider than a terminal, and what an option means is beside it or below its name.
                self.assertLessEqual(max(map(len, text.splitlines())), 80)
                options = text[text.index("\nOptions:"):].partition("\n\n")[0]
                for line in options.splitlines()[2:]:
                    self.assertRegex(line, r"^(  -.{20} |  -\S+( [A-Z|]+)?$| {24})\S?")
                self.assertIn("\n  -h, --help            Print this help\n", text)
                self.assertNotIn("\n\n\n", text)
                self.assertNotIn("Excludes:", text)
        self.assertRegex(self.report("--version"), r"^memlab-report \d+\.\d+\.\d+(\+\d+\.g[0-9a-f]+)?\n$")

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([REPORT, self.log("leak")], stdout=full, env=self.environment,
                                    stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("cannot write to standard output", result.stderr)

    def test_a_preloaded_library_does_no_harm(self):
        self.report(self.log("leak"))
        result = self.call(REPORT, self.path("leak.memlog"), LD_PRELOAD="/nowhere/libmemlab.so")
        self.assertEqual(result.returncode, 0)


class ReportJson(ToolTest):
    def test_the_summary_for_machines(self):
        document = json.loads(self.report("--json", self.log("leak"), self.log("cache")))
        self.assertEqual((document["format"], document["version"]), ("memlab-summary", 1))
        self.assertEqual(document["errors"], [])
        leak, cache = document["reports"]
        self.assertEqual(leak["process"]["arguments"][-1], "two words")
        device = leak["devices"][0]
        self.assertEqual(device["curves"]["allocated"]["peak_bytes"], 4000256 + 12 * 2**20)
        place = device["at_peak"]["places"][0]
        self.assertEqual((place["bytes"], place["count"]), (12 * 2**20, 2))
        self.assertEqual(place["place"]["function"].split("::")[-1], "forward_pass")
        self.assertEqual(place["place"]["line"], line_of("forward_pass"))
        frames = place["stacks"][0]
        self.assertEqual(frames[0]["module"], "/nowhere/libcudart.so.13")
        self.assertEqual(frames[0]["problem"], "file not found")
        self.assertEqual(frames[-1]["line"], line_of("forward_pass"))
        self.assertEqual(sum(p["bytes"] for p in device["live"]["places"]), 4000256 + 4 * 2**20)
        self.assertEqual([m["devices"][0]["reserved_bytes"] for m in cache["marks"][1:]],
                         [20 * 2**20, 20 * 2**20, 0])
        self.assertIsNone(cache["devices"][0]["curves"]["device_used"])

    def test_bad_files_are_listed(self):
        result = self.call(REPORT, "--json", "missing.json", self.log("oom"))
        document = json.loads(result.stdout)
        self.assertEqual(result.returncode, 2)
        self.assertEqual(document["errors"][0]["file"], "missing.json")
        self.assertIn("short by", document["reports"][0]["ooms"][0]["explanation"])

    def test_only_json_on_a_terminal_too(self):
        text = self.on_terminal(REPORT, "--json", "--color", "auto", self.log("leak"))
        self.assertEqual(json.loads(text)["format"], "memlab-summary")

    def test_the_same_file_gives_the_same_bytes(self):
        log = self.log("leak")
        self.assertEqual(self.report("--json", log), self.report("--json", log))


class Terminal(ToolTest):
    def test_colour_on_a_terminal_only(self):
        log = self.log("leak")
        self.assertIn("\x1b[1m", self.on_terminal(REPORT, log))
        self.assertNotIn("\x1b", self.report(log))
        self.assertNotIn("\x1b", self.on_terminal(REPORT, log, NO_COLOR="1"))
        self.assertNotIn("\x1b", self.on_terminal(REPORT, log, TERM="dumb"))
        self.assertNotIn("\x1b", self.on_terminal(REPORT, "--color", "never", log))
        self.assertIn("\x1b[1m", self.report("--color", "always", log))
        self.assertIn("\x1b[1m", self.report("--color", "always", log, NO_COLOR="1"))

    def test_colour_changes_nothing_but_colour(self):
        log = self.log("trouble")
        colored = self.report("--color", "always", log)
        self.assertEqual(re.sub(r"\x1b\[[0-9;]*m", "", colored), self.report(log))

    def test_ascii_without_a_utf8_locale(self):
        log = self.log("trouble")
        for text in (self.report(log, LANG="C"), self.report(log, LC_ALL="POSIX"),
                     self.report("--ascii", log)):
            text.encode("ascii")
            self.assertIn("# allocated   . reserved", text)
        self.assertIn("█ allocated   ░ reserved", self.report(log))

    def test_lines_fit_the_terminal(self):
        for scenario in ("cache", "leak", "oom", "trouble"):
            log = self.log(scenario)
            for columns in (60, 80, 100, 120):
                text = self.on_terminal(REPORT, "--stacks", "2", os.path.basename(log),
                                        columns=columns, NO_COLOR="1")
                for row in text.splitlines():
                    unbreakable = "tests/cli/memlab_synth.cpp" in row or "memlab-report" in row
                    if not unbreakable:
                        self.assertLessEqual(len(row), max(columns, 74), row)
            piped = self.report(os.path.basename(log))
            self.assertLessEqual(max(map(len, piped.splitlines())), 80)


class Run(ToolTest):
    def setUp(self):
        super().setUp()
        # Any object will do for what is tested here: the generator plays the recorded program.
        self.library = self.path("libstand-in.so")
        subprocess.run(["cc", "-shared", "-o", self.library, "-x", "c", "/dev/null"], check=True)
        self.manifests = self.path("tmp")
        os.mkdir(self.manifests)
        self.environment["TMPDIR"] = self.manifests

    def run_tool(self, *arguments, **environment):
        result = self.call(RUN, "--library", self.library, *arguments, **environment)
        self.assertEqual(os.listdir(self.manifests), [])
        return result

    def files(self, ending):
        return sorted(name for name in os.listdir(self.folder.name) if name.endswith(ending))

    def test_exit_codes_pass_through(self):
        for code in (0, 1, 7, 255):
            self.assertEqual(self.run_tool("sh", "-c", "exit %d" % code).returncode, code)

    def test_the_signal_that_ends_the_command_ends_us(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT,
                       signal.SIGPIPE, signal.SIGUSR1):
            result = self.run_tool("--quiet", "sh", "-c", "kill -%d $$" % number)
            self.assertEqual(result.returncode, -number)

    def test_output_and_input_are_the_commands_own(self):
        process = subprocess.run([RUN, "--quiet", "--library", self.library, "cat"], input="héllo\n",
                                 capture_output=True, text=True, env=self.environment, timeout=60,
                                 check=False)
        self.assertEqual((process.stdout, process.stderr), ("héllo\n", ""))

    def test_arguments_are_not_touched(self):
        script = "import sys; print(sys.argv[1:])"
        result = self.run_tool("--quiet", "--", "python3", "-c", script, "-o", "--", "a b", "--quiet")
        self.assertEqual(result.stdout, "['-o', '--', 'a b', '--quiet']\n")
        result = self.run_tool("--quiet", "python3", "-c", script, "--", "--help")
        self.assertEqual(result.stdout, "['--', '--help']\n")

    def test_the_environment_of_the_command(self):
        show = ["sh", "-c", "echo $LD_PRELOAD; env | grep ^MEMLAB_ | sort"]
        lines = self.run_tool("--no-pool", "--option", "stack_depth=3", "--option",
                              "MEMLAB_KEEP_LOG=off", *show).stdout.splitlines()
        self.assertEqual(lines[0], self.library)
        self.assertIn("MEMLAB_KEEP_LOG=off", lines)
        self.assertIn("MEMLAB_POOL=off", lines)
        self.assertIn("MEMLAB_STACK_DEPTH=3", lines)
        self.assertIn("MEMLAB_OUTPUT=%s/memlab.%%e.%%p.json" % self.folder.name, lines)
        manifest = [line for line in lines if line.startswith("MEMLAB_RUN_MANIFEST=")]
        self.assertTrue(manifest[0].startswith("MEMLAB_RUN_MANIFEST=" + self.manifests + "/"))

        lines = self.run_tool("-o", "out/%p.json", *show).stdout.splitlines()
        self.assertIn("MEMLAB_OUTPUT=%s/out/%%p.json" % self.folder.name, lines)
        lines = self.run_tool("--quiet", *show, MEMLAB_OUTPUT="/x/%p.json").stdout.splitlines()
        self.assertIn("MEMLAB_OUTPUT=/x/%p.json", lines)
        self.assertIn("MEMLAB_VERBOSITY=quiet", lines)

    def test_replace_sets_the_frameworks_own_switches(self):
        show = ["sh", "-c", "env | grep -E '^(PYTORCH|XLA|TF|DALI)_' | sort"]
        clean = dict.fromkeys(("TF_CLI_CONFIG_FILE",), "")
        everything = ["DALI_USE_DEVICE_MEM_POOL=0", "PYTORCH_NO_CUDA_MEMORY_CACHING=1",
                      "TF_GPU_ALLOCATOR=cuda_malloc_async", "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
                      "XLA_PYTHON_CLIENT_PREALLOCATE=false"]

        def variables(*options, **environment):
            result = self.run_tool("--quiet", *options, "--", *show, **clean, **environment)
            lines = [line for line in result.stdout.splitlines() if not line.startswith("TF_CLI")]
            return lines, result.stderr

        self.assertEqual(variables(), ([], ""))
        self.assertEqual(variables("--replace"), (everything, ""))
        self.assertEqual(variables("--replace=jax,pytorch"), ([everything[1], *everything[3:]], ""))
        self.assertEqual(variables("--replace=jax", "--no-pool"), (everything[3:], ""))
        in_advance = "XLA_PYTHON_CLIENT_PREALLOCATE"
        self.assertEqual(variables("--replace=jax", **{in_advance: "true"}),
                         ([everything[3], in_advance + "=true"], ""))
        # What the user has set stays, and is mentioned only where it was asked for by name.
        own = {"XLA_PYTHON_CLIENT_ALLOCATOR": "bfc", "PYTORCH_NO_CUDA_MEMORY_CACHING": "0"}
        kept = [everything[0], "PYTORCH_NO_CUDA_MEMORY_CACHING=0", everything[2],
                "XLA_PYTHON_CLIENT_ALLOCATOR=bfc"]
        self.assertEqual(variables("--replace", **own), (kept, ""))
        lines, said = variables("--replace=pytorch,jax", **own)
        self.assertEqual(lines, kept[1::2])
        self.assertEqual(said, "memlab-run: XLA_PYTHON_CLIENT_ALLOCATOR=bfc is set and stays: XLA "
                         "keeps its own cache; unset it, or set it to cuda_async\n")

    def test_other_preloads_stay(self):
        other = self.path("libother.so")
        subprocess.run(["cc", "-shared", "-o", other, "-x", "c", "/dev/null"], check=True)
        result = self.run_tool("sh", "-c", "echo $LD_PRELOAD",
                               LD_PRELOAD=other + ":" + self.library)
        self.assertEqual(result.stdout, self.library + ":" + other + "\n")

    def test_nothing_recorded_is_said_in_one_line(self):
        result = self.run_tool("true")
        self.assertEqual(
            result.stderr,
            "memlab-run: no process of this run used CUDA; nothing was recorded\n")
        self.assertEqual(self.run_tool("--quiet", "true").stderr, "")
        for variable, value in (("MEMLAB_RECORD", "off"), ("MEMLAB_DISABLE", "on")):
            result = self.run_tool("true", **{variable: value})
            self.assertEqual(result.stderr, f"memlab-run: {variable}={value} is set: nothing was recorded\n")

    def test_a_program_that_still_records(self):
        """Its log is no recording that was cut off."""
        with subprocess.Popen([RUN, "--library", self.library, SYNTH, "--run", "cut", "record"], cwd=self.folder.name,
                              env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                self.assertEqual(process.stdout.readline(), "ready\n")
                (name,) = self.files(".memlog")
                words = " ".join(self.report(name).split())
                self.assertRegex(words, r"^train \(pid \d+\) still running after ")
                self.assertRegex(words, r"Taken while the program ran, at [-\d]+ [:\d]+, .* after its start: all figures are")
                self.assertIn("Still allocated now", words)
                self.assertNotIn("cut off", words)
                checked = self.call(REPORT, "check", "--leaks", "1TiB", name)
                self.assertEqual(checked.returncode, 2)
                self.assertIn("still running after", checked.stderr)
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=60)
        self.assertRegex(self.report(name), r"was cut off after at least")

    def test_a_killed_program_gets_its_report(self):
        result = self.run_tool(SYNTH, "--run", "cut", "kill")
        self.assertEqual(result.returncode, -signal.SIGKILL)
        (name,) = self.files(".json")
        self.assertRegex(result.stderr, r"memlab-run: train \(pid \d+\) killed by SIGKILL after")
        self.assertIn("peak allocated 15.81 MiB, reserved 20.00 MiB", result.stderr)
        self.assertIn("report  " + name + " (from the log", result.stderr)
        self.assertIn("memlab-report " + name, result.stderr)
        with open(self.path(name), encoding="utf-8") as file:
            process = json.load(file)["process"]
        self.assertEqual((process["ended"], process["signal"]), ("cut off", "SIGKILL"))
        text = self.report(name)
        self.assertIn("killed by SIGKILL", text)
        self.assertEqual(os.stat(self.path(name)).st_mode & 0o777,
                         os.stat(self.path(name.replace(".json", ".memlog"))).st_mode & 0o777
                         | 0o444 & ~self.umask())
        self.assertEqual(len(os.listdir(self.folder.name)), 4)  # and no half file

    @staticmethod
    def umask():
        mask = os.umask(0)
        os.umask(mask)
        return mask

    def test_a_program_left_by_underscore_exit(self):
        result = self.run_tool(SYNTH, "--run", "cut", "3")
        self.assertEqual(result.returncode, 3)
        self.assertIn("ended by _exit or exec with code 3", result.stderr)

    def test_an_ended_recording_is_not_called_killed(self):
        result = self.run_tool(SYNTH, "--run", "leak", "kill")
        self.assertIn("ended normally", result.stderr)

    def test_a_report_that_is_there_is_left_alone(self):
        script = ('%s --run leak 0 >/dev/null; j=$(ls memlab.train.*.memlog); '
                  'echo "{}" > ${j%%.memlog}.json' % SYNTH)
        result = self.run_tool("sh", "-c", script)
        (name,) = self.files(".json")
        with open(self.path(name), encoding="utf-8") as file:
            self.assertEqual(file.read(), "{}\n")
        self.assertIn("not a memlab report", result.stderr)

    def test_several_processes(self):
        script = "for s in cache leak cut leak leak leak; do %s --run $s 0; done" % SYNTH
        result = self.run_tool("sh", "-c", script)
        self.assertEqual(result.returncode, 0)
        self.assertEqual(len(self.files(".json")), 6)
        self.assertEqual(result.stderr.count("peak allocated"), 4)
        self.assertIn("2 more reports beside these", result.stderr)

    def test_no_report_names_the_files_only(self):
        result = self.run_tool("--no-report", SYNTH, "--run", "leak", "0")
        (name,) = self.files(".json")
        self.assertEqual(result.stderr, "memlab-run: report  %s (from the log: the program wrote "
                         "none)\n" % name)
        self.assertEqual(self.run_tool("--quiet", SYNTH, "--run", "leak", "0").stderr, "")
        self.assertEqual(len(self.files(".json")), 2)

    def test_a_folder_that_cannot_be_written(self):
        if os.geteuid() == 0:
            self.skipTest("root writes everywhere")
        script = "%s --run cut 0; chmod a-w ." % SYNTH
        result = self.run_tool("sh", "-c", script)
        os.chmod(self.folder.name, 0o700)
        self.assertIn("memlab-report reads", result.stderr)

    def test_run_within_a_run(self):
        result = self.run_tool(RUN, "--quiet", "--library", self.library, SYNTH, "--run", "leak", "0")
        self.assertEqual(result.stderr.count("peak allocated 15.81 MiB"), 1)

    def test_the_command_that_it_names_can_be_pasted(self):
        os.mkdir(self.path("bell\a's"))
        result = self.run_tool("-o", "bell\a's/", SYNTH, "--run", "leak", "0")
        command = re.search(r"(?m)^ +more +(memlab-report .*)$", result.stderr).group(1)
        shell = self.call("bash", "-c", command, PATH=BIN + ":" + os.environ["PATH"])
        self.assertEqual((shell.returncode, shell.stderr), (0, ""))

    def test_signals_reach_the_command_once(self):
        script = ("import signal, sys, time\n"
                  "got = []\n"
                  "for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):\n"
                  "    signal.signal(s, lambda n, f: got.append(n))\n"
                  "print('ready', flush=True)\n"
                  "end = time.time() + 20\n"
                  "while len(got) < 3 and time.time() < end:\n"
                  "    time.sleep(0.01)\n"
                  "time.sleep(0.1)\n"
                  "print(sorted(got), flush=True)\n"
                  "sys.exit(9)\n")
        process = subprocess.Popen([RUN, "--quiet", "--library", self.library, "python3", "-c",
                                    script], stdout=subprocess.PIPE, text=True,
                                   env=self.environment)
        self.assertEqual(process.stdout.readline(), "ready\n")
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            process.send_signal(number)
        self.assertEqual(process.stdout.readline(), "[1, 10, 15]\n")
        self.assertEqual(process.wait(60), 9)
        process.stdout.close()

    def test_control_c_reaches_the_command_once_and_the_report_is_written(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder.name)
            os.execve(RUN, [RUN, "--library", self.library, SYNTH, "--run", "cut", "wait"],
                      self.environment)
        output = b""
        while b"ready" not in output:
            self.assertTrue(select.select([terminal], [], [], 30)[0])
            output += os.read(terminal, 4096)
        os.write(terminal, b"\x03")
        while True:
            try:
                got = os.read(terminal, 4096)
            except OSError:
                break
            if not got:
                break
            output += got
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
        self.assertTrue(os.WIFSIGNALED(status))
        self.assertEqual(os.WTERMSIG(status), signal.SIGINT)
        self.assertIn(b"killed by SIGINT", output)
        self.assertEqual(len(self.files(".json")), 1)

    def test_stop_and_continue_from_the_terminal(self):
        process = subprocess.Popen(
            [RUN, "--quiet", "--library", self.library, "sh", "-c", "echo ready; sleep 0.2; exit 5"],
            stdout=subprocess.PIPE, env=self.environment, start_new_session=True, text=True)
        self.assertEqual(process.stdout.readline(), "ready\n")
        os.killpg(process.pid, signal.SIGSTOP)
        deadline = time.time() + 30
        stopped = False
        while not stopped and time.time() < deadline:
            with open("/proc/%d/stat" % process.pid, encoding="utf-8") as stat:
                stopped = stat.read().rsplit(")", 1)[1].split()[0] == "T"
        self.assertTrue(stopped)
        self.assertIsNone(process.poll())
        os.killpg(process.pid, signal.SIGCONT)
        self.assertEqual(process.wait(60), 5)
        process.stdout.close()

    def test_an_ignored_hangup_stays_ignored(self):
        result = self.run_tool("--quiet", "sh", "-c", "trap '' HUP; exec python3 -c 'import signal; "
                               "print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)'")
        self.assertEqual(result.stdout, "True\n")
        result = self.call("sh", "-c", "trap '' HUP CHLD; exec %s --quiet --library %s sh -c 'exit 4'"
                           % (RUN, self.library))
        self.assertEqual(result.returncode, 4)

    def test_commands_that_cannot_be_run(self):
        result = self.run_tool("no-such-command")
        self.assertEqual(result.returncode, 127)
        self.assertEqual(result.stderr, "memlab-run: no-such-command: not found in PATH; check the "
                         "name\n")
        result = self.run_tool("./no-such-file")
        self.assertEqual(result.returncode, 127)
        plain = self.path("plain")
        with open(plain, "w", encoding="utf-8") as file:
            file.write("text")
        result = self.run_tool(plain)
        self.assertEqual(result.returncode, 126)
        self.assertIn("cannot be executed (Permission denied)", result.stderr)

    def test_wrong_usage(self):
        for arguments, expected in (
                ([], "no command given"),
                (["--"], "no command given"),
                (["--bogus", "true"], "--bogus"),
                (["--option", "POOL", "true"], "--option takes NAME=VALUE, not POOL"),
                (["--option", "POOL=maybe", "true"], 'MEMLAB_POOL takes on, off, not "maybe"'),
                (["--option", "NONE=1", "true"], "there is no option MEMLAB_NONE"),
                (["--option", "RUN_MANIFEST=x", "true"], "there is no option"),
                (["-o", "%q", "true"], "MEMLAB_OUTPUT takes"),
                (["--replace=torch", "true"],
                 '--replace knows pytorch, jax, tensorflow, dali, not "torch"'),
                (["--replace=jax,", "true"], 'dali, not ""'),
                (["--replace=cupy", "true"], "put cupy.cuda.set_allocator(None) at its start"),
                (["--replace", "--replace=jax", "true"], "--replace"),
                (["--library", "/nowhere.so", "true"], "cannot read /nowhere.so"),
                (["--option"], "--option")):
            result = self.call(RUN, *arguments)
            self.assertEqual(result.returncode, 2, (arguments, result.stderr))
            self.assertEqual(result.stdout, "")
            self.assertIn(expected, result.stderr)
            self.assertTrue(result.stderr.startswith("memlab-run: "))
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_a_library_that_ld_preload_cannot_carry(self):
        os.mkdir(self.path("two words"))
        library = self.path("two words/libmemlab.so")
        os.link(self.library, library)
        for program, arguments in ((RUN, ["--library", library]), (self.path("two words/bin/memlab-run"), [])):
            if program != RUN:
                os.makedirs(self.path("two words/bin"))
                os.makedirs(self.path("two words/lib"))
                shutil.copy(RUN, program)
                library = self.path("two words/lib/libmemlab.so")
                os.link(self.library, library)
            result = self.call(program, *arguments, "true")
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertEqual(result.stderr, "memlab-run: LD_PRELOAD cannot contain a path with a space or a colon: "
                             f"{library}; move it, or make a link to it (ln -s) and give that with --library\n")

        # What it says to do works, also for what outlives memlab-run.
        link = self.path("libmemlab-link.so")
        os.symlink(library, link)
        result = self.call(program, "--quiet", "--library", link, "--", "sh", "-c",
                           'tr "\\0" "\\n" </proc/self/environ; grep -c libmemlab /proc/self/maps')
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn(f"\nLD_PRELOAD={link}\n", result.stdout)
        self.assertGreater(int(result.stdout.split()[-1]), 0)
        result = self.call("sh", "-c", 'cd "${1%/*}" && exec "$0" --quiet --library "${1##*/}" -- printenv LD_PRELOAD',
                           program, link)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, f"{link}\n", ""))

    def test_help(self):
        text = self.call(RUN, "--help").stdout
        self.assertIn("Usage: memlab-run [OPTIONS] [--] COMMAND", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        options = self.call(RUN, "--help-options").stdout
        self.assertIn("MEMLAB_POOL=on", options)
        self.assertIn("takes auto, always, never", options)
        self.assertNotIn("MEMLAB_RUN_MANIFEST", options)
        self.assertRegex(self.call(RUN, "--version").stdout, r"^memlab-run \d+\.\d+\.\d+(\+\d+\.g[0-9a-f]+)?\n$")


if __name__ == "__main__":
    unittest.main()
