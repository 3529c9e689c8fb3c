#!/usr/bin/env python3
"""tools/dev frameworks, the part that checks files, on a stand-in for PyTorch's: true where all is as memlab relies on,
false and exit code 1 for each thing that is moved.

usage: test_frameworks.py PROGRAMS     the folder with the stand-ins for PyTorch's libraries
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

DEV = pathlib.Path(__file__).resolve().parents[2] / "tools" / "dev"
PROGRAMS = pathlib.Path()

DEVICE = """
#pragma once
#include <cstdint>
namespace c10 {
enum class DeviceType : std::int8_t { CPU = 0, CUDA = 1 };
struct Device {
    DeviceType type_;
    std::int8_t index_;
};
}
"""
SEQUENCE = """
#pragma once
#include <cstdint>
namespace at::sequence_number { std::uint64_t peek(); }
"""
NODE = """
#pragma once
#include <cstdint>
#include <memory>
namespace torch::autograd {
struct Node : std::enable_shared_from_this<Node> {
    virtual ~Node() = default;
  protected:
    uint64_t sequence_nr_;
    uint64_t topological_nr_ = 0;
    mutable bool has_parent_ = false;
    uint64_t thread_id_ = 0;
};
struct Edge {
    std::shared_ptr<Node> function;
    uint32_t input_nr;
};
std::shared_ptr<Node> get_current_node();
}
"""
COUNTED_NODE = NODE.replace("struct Node : std::enable_shared_from_this<Node> {\n    virtual ~Node() = default;", """
class Target {
  public:
    virtual ~Target() = default;
  private:
    uint64_t combined_refcount_;
};
template <class T> struct Counting {
    ~Counting() {}
    T* target;
};
struct Node : Target {""").replace("std::shared_ptr<Node>", "Counting<Node>")
MODULE = """
class Module:
    def _apply(self, fn): ...
    def _call_impl(self, *args): ...
    def _wrapped_call_impl(self, *args): ...
    def load_state_dict(self, state): ...
    __call__: object = _wrapped_call_impl
"""


class Frameworks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.package = self.root / "usr/lib/python3/dist-packages/torch"
        (self.root / "tmp").mkdir()
        self.write("version.py", "__version__ = '2.99.0+stand.in'\n")
        for name in ("_ops.py", "utils/_contextlib.py", "autograd/function.py", "distributed/__init__.py"):
            self.write(name, "")
        self.write("nn/modules/module.py", MODULE)
        self.write("optim/adam.py", "class Adam:\n    def _init_group(self): ...\n")
        self.header("c10/core/Device.h", DEVICE)
        self.header("ATen/SequenceNumber.h", SEQUENCE)
        self.header("torch/csrc/autograd/function.h", NODE)
        self.libraries("pytorch", "pytorch/torch")

    def write(self, name, text):
        path = self.package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def header(self, name, text):
        path = self.root / "usr/include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def libraries(self, *folders):
        (self.package / "lib").mkdir(exist_ok=True)
        for folder in folders:
            for library in (PROGRAMS / folder).glob("lib*.so"):
                shutil.copy2(library, self.package / "lib")

    def check(self):
        """The exit code, and the lines of the table that are not true."""
        result = subprocess.run([str(DEV), "frameworks", "--check", str(self.root)], capture_output=True, text=True,
                                check=False)
        rows = [line for line in result.stdout.splitlines() if " 2.99.0 " in line]
        self.assertGreater(len(rows), 5, result)
        self.assertEqual(result.stderr, "")
        for row in rows:
            self.assertRegex(row, r"  (true|false \(.*\))$")
        return result.returncode, [row for row in rows if not row.endswith("true")]

    def assert_false(self, *whats):
        code, rows = self.check()
        self.assertEqual((code, len(rows)), (1, len(whats)), rows)
        for row, what in zip(rows, whats):
            self.assertTrue(row.startswith(what), (row, what))

    def test_all_as_known(self):
        self.assertEqual(self.check(), (0, []))
        self.header("torch/csrc/autograd/node.h", COUNTED_NODE)
        self.assertEqual(self.check(), (0, []))

    def test_functions_that_have_moved(self):
        for folder, what in (("torch_2_0", "libtorch_cpu.so exports torch::autograd::get_current_node"),
                             ("torch_no_engine", "libtorch_cpu.so exports torch::autograd::Engine::evaluate_function"),
                             ("torch_no_counter", "libtorch_cpu.so exports at::sequence_number::peek"),
                             ("torch_bound", "libtorch_cpu.so calls torch::autograd::impl::set_gradient_edge through")):
            with self.subTest(folder):
                self.libraries(f"pytorch/{folder}")
                self.assert_false(what)
        self.libraries("pytorch/torch", "pytorch_other_function")
        self.assert_false("libc10.so exports c10::reportMemoryUsageToProfiler",
                          "libc10_cuda.so calls c10::reportMemoryUsageToProfiler through the loader")
        (self.package / "lib/libc10_cuda.so").unlink()  # as in a build for the CPU
        self.libraries("pytorch_2_2")
        (self.package / "lib/libc10_cuda.so").unlink()
        self.assertEqual(self.check(), (0, []))

    def test_layouts_that_have_moved(self):
        for change, whats in (
                (("uint64_t topological_nr_ = 0;", ""), ("layouts.cpp compiles",)),
                (("    uint64_t sequence_nr_;", "    void* first_;\n    uint64_t sequence_nr_;"),
                 ("Node: bytes before", "Node::sequence_nr_: 24", "Node::topological_nr_", "Node::has_parent_",
                  "Node::thread_id_: 48")),
                (("uint64_t thread_id_", "uint32_t thread_id_"), ("Node::thread_id_: 48", "Node::thread_id_, bytes")),
                (("    std::shared_ptr<Node> function;\n    uint32_t input_nr;",
                  "    uint32_t input_nr;\n    std::shared_ptr<Node> function;"), ("Edge::function",)),
                (("std::shared_ptr<Node> get_current_node", "std::unique_ptr<Node> get_current_node"),
                 ("layouts.cpp compiles",))):
            with self.subTest(change):
                self.assertIn(change[0], NODE)
                self.header("torch/csrc/autograd/function.h", NODE.replace(*change))
                self.assert_false(*whats)
        self.header("torch/csrc/autograd/function.h", NODE)
        self.header("c10/core/Device.h", DEVICE.replace("CUDA = 1", "CUDA = 2"))
        self.assert_false("DeviceType::CUDA")

    def test_pythons_names_that_have_moved(self):
        self.write("nn/modules/module.py", MODULE.replace("def _call_impl", "def _call"))
        self.assert_false("Module._call_impl")
        self.write("nn/modules/module.py", MODULE.replace("object = _wrapped_call_impl", "object = _call_impl"))
        self.assert_false("Module.__call__ is")
        self.write("nn/modules/module.py", MODULE)
        self.write("optim/adam.py", "def init_group(): ...\n")
        (self.package / "_ops.py").unlink()
        self.assert_false("file torch/_ops.py", "torch/optim: _init_group()")

    def test_where_there_is_no_pytorch(self):
        shutil.rmtree(self.package)
        result = subprocess.run([str(DEV), "frameworks", "--check", str(self.root)], capture_output=True, text=True,
                                check=False)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertIn("no torch/version.py", result.stderr)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1))
    unittest.main()
