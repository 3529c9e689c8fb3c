"""memlab-run --doctor: what it says of a machine and a command is what a run then shows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import unittest

from harness import Outcome, run
from support import Build, EndToEnd

COUNTED_NODES = """
struct Node;
struct TORCH_API Node : c10::intrusive_ptr_target {
 public:
  uint64_t sequence_nr() const noexcept {
    return sequence_nr_;
  }

 protected:
  // What it is called by.
  uint64_t sequence_nr_;
  uint64_t topological_nr_ = 0;
  mutable bool has_parent_ = false;
  bool has_hooks_ = false;
  uint64_t thread_id_ = 0;
  std::mutex mutex_;
};
"""
SHARED_NODES = COUNTED_NODES.replace("c10::intrusive_ptr_target", "std::enable_shared_from_this<Node>")
NO_DRIVER = {"LD_LIBRARY_PATH": ""}


@unittest.skipIf(Build.sanitizer, "a sanitizer's runtime must be preloaded first")
class Doctor(EndToEnd):
    """On the simulated driver, unless a test takes it away."""

    def doctor(self, *arguments: str, settings: dict[str, str] | None = None) -> Outcome:
        command = [str(self.layout.tool("memlab-run")), "--doctor", *arguments]
        return run(command, self.layout.environment(memlab=False, settings=settings), self.cwd)

    def found(self, *arguments: str, settings: dict[str, str] | None = None) -> dict:
        outcome = self.doctor("--json", *arguments, settings=settings)
        own = [line for line in outcome.stderr.splitlines() if not line.startswith(b"ERROR: ld.so")]
        self.assertEqual(own, [], outcome.describe())
        document = json.loads(outcome.stdout)
        self.assertEqual((document["format"], document["version"]), ("memlab-doctor", 1))
        self.assertEqual(document["exit_code"], outcome.code)
        self.assertEqual(document["verdict"] == "blocked", outcome.code == 1)
        return document

    def finding(self, document: dict, part: str, subject: str) -> dict:
        found = [each for each in document[part] if each["subject"] == subject]
        self.assertEqual(len(found), 1, (subject, document[part]))
        return found[0]

    def blocked_program(self, *command: str) -> str:
        """The doctor's reason for which nothing of the command would be recorded."""
        document = self.found("--", *command)
        program = self.finding(document, "command", "program")
        self.assertEqual(program["weight"], "blocked", program)
        self.assertTrue(program["advice"])
        return program["fact"]

    def compile(self, source: str, name: str, *options: str, compiler: str = "cc") -> str:
        if shutil.which(compiler) is None:
            self.skipTest(f"there is no {compiler} here")
        path = str(self.work / name)
        built = subprocess.run([compiler, "-x", "c", "-", "-o", path, *options], input=source, text=True,
                               capture_output=True, check=False)
        if built.returncode != 0:
            self.skipTest(f"{compiler} {' '.join(options)} does not work here: {built.stderr}")
        return path

    # ---- PyTorch --------------------------------------------------------------------------------

    def pytorch(self, *folders: str, header: str = "") -> list[dict]:
        """What is said of a PyTorch with these stand-ins for its libraries, and this class of nodes in its headers."""
        libraries = self.pytorch_package(*folders)
        include = libraries.parent / "include" / "torch" / "csrc" / "autograd"
        include.mkdir(parents=True)
        if header:
            (include / "node.h").write_text(header)
        document = self.found("--", sys.executable, "train.py",
                              settings={"PYTHONPATH": str(libraries.parent.parent)})
        shutil.rmtree(libraries.parent.parent)
        found = [each for each in document["command"] if each["subject"] == "PyTorch"]
        self.assertEqual([each for each in document["pythons"] if each["subject"] == "PyTorch"][:len(found)], found)
        return found

    def test_a_pytorch_as_it_is_known(self) -> None:
        for header in (SHARED_NODES, COUNTED_NODES, ""):
            (found,) = self.pytorch("pytorch", "pytorch/torch", header=header)
            self.assertEqual(found["weight"], "fine")
            self.assertRegex(found["fact"], r"/torch, 2\.99\.0: tensors and forward lines are read$")
            self.assertEqual("shows when it runs" in found["advice"], not header)

    def test_doors_of_pytorch_that_have_moved(self) -> None:
        """In the words in which a recording says it (test_python, test_suballocations)."""
        name = "torch::autograd::"
        for folders, why in (
                (("pytorch_other_function", "pytorch/torch"),
                 ("tensors", "c10::reportMemoryUsageToProfiler is not exported")),
                (("pytorch", "pytorch/torch_2_0"), ("forward lines", f"{name}get_current_node is not exported")),
                (("pytorch", "pytorch/torch_no_engine"),
                 ("forward lines", f"{name}Engine::evaluate_function is not exported")),
                (("pytorch", "pytorch/torch_no_counter"),
                 ("forward lines", "at::sequence_number::peek is not exported")),
                (("pytorch", "pytorch/torch_bound"),
                 ("forward lines", "its operators make their backward graph unseen"))):
            with self.subTest(folders):
                (found,) = self.pytorch(*folders, header=SHARED_NODES)
                self.assertEqual((found["weight"], found["fact"]),
                                 ("limit", f"PyTorch 2.99.0: {why[0]} not read: {why[1]}"))

    def test_a_library_that_does_not_report_its_blocks(self) -> None:
        libraries = self.pytorch_package("pytorch_other_function", "pytorch/torch")
        shutil.copy2(self.layout.program("pytorch_cache").parent / "pytorch" / "libc10.so", libraries)
        document = self.found("--", sys.executable, settings={"PYTHONPATH": str(libraries.parent.parent)})
        self.assertEqual(self.finding(document, "command", "PyTorch")["fact"],
                         "PyTorch 2.99.0: tensors not read: it does not call c10::reportMemoryUsageToProfiler")

    def test_nodes_that_are_laid_out_in_another_way(self) -> None:
        for change in (("  uint64_t sequence_nr_;", "  void* first_;\n  uint64_t sequence_nr_;"),
                       ("  uint64_t sequence_nr_;", "  uint32_t sequence_nr_;"),
                       ("  uint64_t topological_nr_ = 0;\n", ""), ("c10::intrusive_ptr_target", "c10::node_target")):
            with self.subTest(change):
                header = COUNTED_NODES.replace(*change)
                self.assertNotEqual(header, COUNTED_NODES)
                (found,) = self.pytorch("pytorch", "pytorch/torch_2_14", header=header)
                self.assertEqual((found["weight"], found["fact"]),
                                 ("limit", "PyTorch 2.99.0: forward lines not read: layout unknown"))

    def test_modules_that_are_called_in_another_way(self) -> None:
        self.pytorch_package("pytorch", "pytorch/torch")
        source = self.work / "site" / "torch" / "nn" / "modules" / "module.py"
        source.parent.mkdir(parents=True)
        for text, weight, what in (("def _call_impl(): ...\ndef _wrapped_call_impl(): ...\n", "fine", r"are read$"),
                                   ("def _wrapped_call_impl(): ...\n", "limit",
                                    r"^PyTorch 2.99.0: calls of nn.Module not read: nn.Module._call_impl is not there$")):
            source.write_text(text)
            document = self.found("--", sys.executable, settings={"PYTHONPATH": str(self.work / "site")})
            found = self.finding(document, "command", "PyTorch")
            self.assertEqual(found["weight"], weight)
            self.assertRegex(found["fact"], what)

    def test_a_pytorch_without_cuda(self) -> None:
        (found,) = self.pytorch("pytorch/torch", header=SHARED_NODES)
        self.assertRegex(found["fact"], "2.99.0: built without CUDA$")

    # ---- the machine ----------------------------------------------------------------------------

    def test_a_machine_with_a_driver(self) -> None:
        document = self.found()
        self.assertIn(document["verdict"], ("fine", "note", "limit"))
        self.assertRegex(self.finding(document, "machine", "libc")["fact"], r"glibc 2\.\d+; .* needs 2\.\d+")
        self.assertIn("CUDA 13.0", self.finding(document, "machine", "driver")["fact"])
        self.assertEqual(self.finding(document, "machine", "GPU")["fact"],
                         "Simulated CUDA device (8.00 GiB)")
        self.assertEqual(self.finding(document, "environment", "preload 1")["fact"],
                         f"{self.layout.library.resolve()} (memlab)")
        self.assertIsNone(document["command"])

    def test_the_page(self) -> None:
        outcome = self.doctor("--", *self.program("malloc_free"))
        self.assertEqual((outcome.code, outcome.stderr), (0, b""), outcome.describe())
        text = outcome.stdout.decode("utf-8")
        self.assertLessEqual(max(map(len, text.splitlines())), max(80, len(str(self.work)) + 60))
        places = [text.index(part) for part in (
            "memlab records this command", "Command\n", "Machine\n", "Environment\n", "A run would set\n",
            "FILL=zero", "--no-pool", "BACKEND=classic", "CUPTI=off", "DISABLE=on")]
        self.assertEqual(places, sorted(places))

    def test_each_switch_is_an_option(self) -> None:
        for switch in self.found()["switches"]:
            outcome = run([str(self.layout.tool("memlab-run")), "--no-report", *switch["option"].split(), "--",
                           *self.program("malloc_free")], self.layout.environment(memlab=False), self.cwd)
            self.assertEqual(outcome.code, 0, outcome.describe())
            name, value = switch["variable"].split("=")
            under = self.under_memlab(self.program("malloc_free"), {name: value})
            self.assertEqual((under.code, under.stderr), (0, b""), under.describe())

    def test_without_a_driver(self) -> None:
        driver = self.finding(self.found(settings=NO_DRIVER), "machine", "driver")
        self.assertEqual(driver["weight"], "blocked")
        self.assertIn("libcuda.so.1", driver["fact"])

    def test_a_driver_that_sees_no_gpu(self) -> None:
        driver = self.finding(self.found(settings={"SIMCUDA_FAIL": "cuInit:1:100"}), "machine", "driver")
        self.assertEqual(driver["weight"], "blocked")
        self.assertIn("error 100", driver["fact"])
        self.assertIn("CUDA_VISIBLE_DEVICES", driver["advice"])

    def test_an_old_driver(self) -> None:
        driver = self.finding(self.found(settings={"SIMCUDA_DRIVER_VERSION": "12020"}), "machine", "driver")
        self.assertEqual(driver["weight"], "limit")
        self.assertIn("CUDA 12.2", driver["fact"])

    def test_a_driver_with_functions_that_memlab_does_not_know(self) -> None:
        self.assertEqual([each for each in self.found()["machine"] if each["subject"] == "functions"], [])
        newer = self.layout.root / "lib" / "simcuda" / "99.0"
        functions = self.finding(self.found(settings={"SIMCUDA_DRIVER_VERSION": "99000", "LD_LIBRARY_PATH": str(newer)}),
                                 "machine", "functions")
        self.assertEqual(functions["weight"], "note")
        self.assertEqual(functions["fact"], "memlab knows those up to CUDA 13.5, not cuMemAlloc_v3, cuMemBindExtent, "
                         "cuMemFree_v3, cuMemsetTileAsync, cuMemsetTileAsync_ptsz, cuStreamBeginCapture_v3, "
                         "cuStreamEndCapture_v2")
        newer = self.layout.root / "lib" / "simcuda" / "13.5"
        document = self.found(settings={"SIMCUDA_DRIVER_VERSION": "13050", "LD_LIBRARY_PATH": str(newer)})
        self.assertEqual([each for each in document["machine"] if each["subject"] == "functions"], [])

    def test_a_driver_that_crashes(self) -> None:
        self.compile("int cuDriverGetVersion(int* v) { *v = 13000; return 0; }\n"
                     "int cuInit(unsigned flags) { __builtin_trap(); return (int)flags; }\n",
                     "libcuda.so.1", "-shared", "-fPIC")
        driver = self.finding(self.found(settings={"LD_LIBRARY_PATH": str(self.work)}), "machine", "driver")
        self.assertEqual(driver["weight"], "blocked")
        self.assertIn("crashed", driver["fact"])

    def test_no_other_tool_is_woken(self) -> None:
        self.compile("#include <stdlib.h>\n"
                     "int cuInit(unsigned flags) { return getenv(\"CUDA_INJECTION64_PATH\") ? 999 : 100; }\n",
                     "libcuda.so.1", "-shared", "-fPIC")
        document = self.found(settings={"LD_LIBRARY_PATH": str(self.work), "CUDA_INJECTION64_PATH": "/a/tool.so"})
        self.assertIn("error 100", self.finding(document, "machine", "driver")["fact"])

    # ---- the environment ------------------------------------------------------------------------

    def test_other_preloads_in_their_order(self) -> None:
        wrapper = str(self.layout.program("driver_wrapper.so"))
        document = self.found(settings={"LD_PRELOAD": f"{wrapper}:/no/such/library.so"})
        facts = [self.finding(document, "environment", f"preload {place}")["fact"] for place in (1, 2, 3)]
        self.assertIn("(memlab)", facts[0])
        self.assertEqual(facts[1:], [wrapper, "/no/such/library.so"])
        self.assertIn("wraps the CUDA driver", self.finding(document, "environment", "preload 2")["advice"])
        self.assertIn("ignores it", self.finding(document, "environment", "preload 3")["advice"])

    def test_what_is_preloaded_is_named(self) -> None:
        known = {"/tmp/snapshot-cuda/libcuinterpose.so": "the CUDA interposer of NVIDIA's Dynamo Snapshot",
                 "libnccl-checkpoint-shim.so": "NCCL's checkpoint shim", "/usr/local/vgpu/libvgpu.so": "HAMi-core",
                 "libvglfaker.so": "VirtualGL", "/usr/lib/libtcmalloc.so.4": "gperftools' malloc",
                 "libjemalloc.so.2": "jemalloc"}
        document = self.found(settings={"LD_PRELOAD": ":".join([*known, "/no/mylibvgpu.so"])})
        for place, (path, name) in enumerate(known.items(), 2):
            finding = self.finding(document, "environment", f"preload {place}")
            self.assertTrue(finding["fact"].startswith(f"{path}, {name}"), finding)
            self.assertEqual(finding["weight"], "note")
            self.assertTrue(finding["advice"])
        self.assertIn("ignores it", self.finding(document, "environment", "preload 2")["advice"])
        other = self.finding(document, "environment", f"preload {len(known) + 2}")
        self.assertEqual(other["fact"], "/no/mylibvgpu.so")

    def test_which_wrapper_of_dlsym_must_stay_behind(self) -> None:
        asks = str(self.layout.program("dlsym_layer.so"))
        reads = self.compile("void* dlsym(void* handle, const char* name) { return name ? handle : 0; }\n", "reads.so",
                             "-shared", "-fPIC", "-fno-builtin")
        document = self.found(settings={"LD_PRELOAD": f"{asks}:{reads}"})
        advice = [self.finding(document, "environment", f"preload {place}")["advice"] for place in (2, 3)]
        self.assertIn("wraps dlsym", advice[0])
        self.assertNotIn("Keep it after memlab", advice[0])
        self.assertIn("Keep it after memlab", advice[1])

    def test_who_has_cupti(self) -> None:
        injected = {"CUDA_INJECTION64_PATH": "/opt/tool/libtool.so"}
        self.assertEqual(self.finding(self.found(settings=injected), "environment", "CUPTI")["weight"], "note")
        audited = self.found("--fail-on-bypass", settings=injected)
        self.assertEqual(self.finding(audited, "environment", "CUPTI")["weight"], "limit")

    def test_who_has_nvtx(self) -> None:
        document = self.found(settings={"NVTX_INJECTION64_PATH": "/opt/tool/libtool.so"})
        self.assertEqual(self.finding(document, "environment", "NVTX")["weight"], "limit")

    def test_output_that_cannot_be_written(self) -> None:
        output = self.finding(self.found("-o", "/proc/memlab/"), "environment", "output")
        self.assertEqual(output["weight"], "limit")
        self.assertIn("/tmp", output["advice"])
        output = self.finding(self.found("-o", "/proc/memlab/", settings={"TMPDIR": "/proc/none"}),
                              "environment", "output")
        self.assertEqual(output["weight"], "blocked")

    def test_output_in_the_directory_that_a_program_may_remove(self) -> None:
        advice = self.finding(self.found(), "environment", "output")["advice"]
        self.assertIn("removes its working directory", advice)
        output = self.finding(self.found("-o", f"{self.work}/"), "environment", "output")
        self.assertEqual((output["weight"], output["advice"]), ("fine", ""))

    def test_a_folder_that_is_yet_to_be_made(self) -> None:
        output = self.finding(self.found("-o", "deep/er/"), "environment", "output")
        self.assertEqual(output["weight"], "fine")
        self.assert_nothing_written()

    def test_options(self) -> None:
        document = self.found(settings={"MEMLAB_POOL": "perhaps", "MEMLAB_DISABLE": "on"})
        options = [each for each in document["environment"] if each["subject"] == "options"]
        self.assertEqual([each["weight"] for each in options], ["limit", "blocked"])
        self.assertIn("MEMLAB_POOL", options[0]["fact"])

    def test_the_last_of_an_option_counts_as_in_a_run(self) -> None:
        document = self.found("--option", "RECORD=off", "--option", "RECORD=on")
        self.assertEqual([each for each in document["environment"] if each["subject"] == "options"], [])
        document = self.found("--option", "RECORD=on", "--option", "RECORD=off")
        self.assertEqual(self.finding(document, "environment", "options")["fact"], "MEMLAB_RECORD=off")

    # ---- the command ----------------------------------------------------------------------------

    def test_the_command_is_not_run(self) -> None:
        document = self.found("--", "touch", str(self.cwd / "here"))
        self.assertEqual(self.finding(document, "command", "preload")["weight"], "fine")
        self.assert_nothing_written()

    def test_a_program_that_is_not_there(self) -> None:
        self.assertIn("not found", self.blocked_program("no-such-program"))

    def test_a_script(self) -> None:
        script = self.cwd / "train"
        script.write_text("#!/usr/bin/env python3\n", encoding="ascii")
        script.chmod(0o755)
        document = self.found("--", str(script))
        self.assertIn(f"{script}, a script of ", self.finding(document, "command", "program")["fact"])
        self.assertIn("are read", self.finding(document, "command", "Python")["fact"])

    def test_what_a_python_says_of_its_build(self) -> None:
        """By its symbols, whatever its name; none of these is run."""
        source = """
            const char* Py_GetVersion(void) {{ return ""; }}
            unsigned long Py_Version = {version};
            unsigned long _PyRuntime[200] = {{{runtime}}};
            int {other};
            int main(void) {{ return 0; }}"""
        cookie = hex(int.from_bytes(b"xdebugpy", "little"))
        for version, runtime, other, weight, said in (
                ("0x030b07f0", "0", "unused", "fine", "3.11.7: functions and lines are read"),
                ("0x030b07f0", "0", "_Py_NegativeRefcount", "limit", "3.11.7 (debug build): its functions and lines are"),
                ("0x031000a0", "0", "unused", "limit", "3.16.0: its functions and lines are not read"),
                ("0x030f02f0", f"{cookie}, 0x030f02f0, 1", "unused", "limit", "3.15.2 (free-threaded): its functions"),
                ("0x030f02f0", f"{cookie}, 0x031002f0, 0", "unused", "limit", "another version's"),
                ("0x030f02f0", f"{cookie}, 0x030f02f0, 0", "unused", "limit", "has PyThreadState.interp at 0, not at 16"),
                ("0x030f02f0", "0", "unused", "limit", "does not say where it has its structures")):
            with self.subTest(version=version, runtime=runtime, other=other):
                built = self.compile(source.format(version=version, runtime=runtime, other=other), "python", "-rdynamic")
                finding = self.finding(self.found("--", built), "command", "Python")
                self.assertEqual(finding["weight"], weight)
                self.assertIn(said, finding["fact"] + finding["advice"])

    def test_whether_names_come_into_a_python(self) -> None:
        python = "/usr/bin/python3"
        if not os.path.exists(python):
            self.skipTest("no Python of the distribution's is installed here")
        for arguments, weight in ((["-S", "x.py"], "limit"), (["-BIS", "x.py"], "limit"), (["-I", "x.py"], "note"),
                                  (["-W", "error", "-E", "-c", "1"], "note"), (["-Xdev", "-Es", "x.py"], "note"),
                                  (["-c", "1", "-S"], None), (["-m", "x", "-I"], None), (["x.py", "-S"], None),
                                  (["-WS", "x.py"], None), (["-", "-I"], None)):
            with self.subTest(arguments):
                found = [each["weight"] for each in self.found("--", python, *arguments)["command"]
                         if each["subject"] == "names"]
                self.assertEqual(found, [weight] if weight else [])
        off = self.found("--option", "NAMES=off", "--", python, "-S", "x.py")
        self.assertNotIn("names", [each["subject"] for each in off["command"]])

    def test_a_static_program(self) -> None:
        self.assertIn("static", self.blocked_program(self.compile("int main(void){return 0;}", "a", "-static")))

    def test_another_libc(self) -> None:
        self.assertIn("musl", self.blocked_program(
            self.compile("int main(void){return 0;}", "a", compiler="musl-gcc")))

    def test_a_set_user_id_program(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("only root can give a file to another user")
        copy = self.work / "true"
        shutil.copy("/bin/true", copy)
        os.chown(copy, 65534, 65534)
        copy.chmod(0o4755)
        self.assertIn("set-user-id", self.blocked_program(str(copy)))

    def test_deep_binding(self) -> None:
        source = ("#define _GNU_SOURCE\n#include <dlfcn.h>\n"
                  "int main(int n, char** v){{return dlopen(v[n - 1], RTLD_NOW{}) == 0;}}")
        for options in (["-O2"], ["-O0"], ["-O2", "-fno-plt"], ["-O2", "-no-pie"]):
            deep = self.compile(source.format(" | RTLD_DEEPBIND"), "deep", *options)
            shallow = self.compile(source.format(" | RTLD_GLOBAL"), "shallow", *options)
            finding = self.finding(self.found("--", deep), "command", "deep binding")
            self.assertEqual((finding["weight"], finding["fact"]),
                             ("limit", "deep uses RTLD_DEEPBIND"), options)
            finding = self.finding(self.found("--", shallow), "command", "deep binding")
            self.assertEqual(finding["weight"], "fine", options)

    def test_wrong_usage(self) -> None:
        outcome = run([str(self.layout.tool("memlab-run")), "--json", "--", "true"],
                      self.layout.environment(memlab=False), self.cwd)
        self.assertEqual(outcome.code, 2, outcome.describe())
        self.assertIn(b"--doctor", outcome.stderr)
